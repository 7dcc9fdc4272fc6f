// The precision of a run, and its loss scaling.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESOLVE_PRECISION_H_
#define SHARDSHIFT_TOOLS_RESOLVE_PRECISION_H_

#include "tools/overlay.h"
#include "tools/run_flags.h"
#include "trainer/optim/loss_scale.h"
#include "trainer/precision.h"

namespace shardshift {

// Puts what the flags say over what is there.
void SetPrecision(const PrecisionFlags& flags, trainer::Precision& precision,
                  trainer::LossScaling& scaling, Overlay& overlay);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESOLVE_PRECISION_H_
