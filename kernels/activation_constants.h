// The constants of both forms of GeLU, shared by ref/ and cpu/.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_
#define SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_

namespace shardshift::kernels {

inline constexpr float kGeluC0 = 1.5957691216057308F;   // 2 sqrt(2/pi)
inline constexpr float kGeluC1 = 0.07135481627159764F;  // 0.044715 c0
inline constexpr float kGelu3C1 = 0.2140644488147929F;  // 3 c1

// The tail of the normal distribution, Phi(-t) = e^(-t^2/2) u P(u) with
// u = 1 / (1 + kTailScale t), for 0 <= t <= kTailMax; beyond, it is 0 as a
// float. P was fitted by Lawson's algorithm to a relative error of 3.3e-8.
inline constexpr float kTailMax = 16.0F;
inline constexpr float kTailScale = 0.35F;
inline constexpr float kTail[] = {
    0.139621243F, 0.139864475F,  0.119814523F, 0.105578549F,  -0.0232724678F,
    0.159405157F, -0.255912334F, 0.144065768F, -0.0291649252F};
inline constexpr float kInverseRootTwoPi = 0.3989422804014327F;

}  // namespace shardshift::kernels

#endif  // SHARDSHIFT_KERNELS_ACTIVATION_CONSTANTS_H_
