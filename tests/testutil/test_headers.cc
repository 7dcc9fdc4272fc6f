// Nothing but the headers that tests share, precompiled once.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testutil/status_matchers.h"
