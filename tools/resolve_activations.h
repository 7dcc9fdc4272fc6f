// How ranks keep activations: flags over what the checkpoint's run did.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESOLVE_ACTIVATIONS_H_
#define SHARDSHIFT_TOOLS_RESOLVE_ACTIVATIONS_H_

#include "tools/overlay.h"
#include "tools/run_flags.h"
#include "trainer/activation_options.h"

namespace shardshift {

// `overlay` refuses flags of recomputation that do not go together.
void SetActivations(const ActivationFlags& flags,
                    trainer::ActivationOptions& options, Overlay& overlay);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESOLVE_ACTIVATIONS_H_
