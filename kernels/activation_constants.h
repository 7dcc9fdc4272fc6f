// The constants of the tanh form of GeLU, shared by ref/ and cpu/.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_
#define SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_

namespace shardshift::kernels {

inline constexpr float kGeluC0 = 1.5957691216057308F;   // 2 sqrt(2/pi)
inline constexpr float kGeluC1 = 0.07135481627159764F;  // 0.044715 c0
inline constexpr float kGelu3C1 = 0.2140644488147929F;  // 3 c1

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_
