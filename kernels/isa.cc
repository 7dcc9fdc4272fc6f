// SPDX-License-Identifier: Apache-2.0
#include "kernels/isa.h"

#include <cstdlib>

namespace shardshift::kernels {
namespace {

constexpr Isa kAllIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

// The highest instruction set that SHARDSHIFT_ISA allows.
Isa AllowedIsa() {
  // Nothing in this program sets environment variables.
  const char* value =
      std::getenv("SHARDSHIFT_ISA");  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr) return Isa::kAvx512;
  for (const Isa isa : kAllIsas) {
    if (IsaName(isa) == value) return isa;
  }
  return Isa::kAvx512;
}

}  // namespace

Isa DetectIsa() {
  const Isa allowed = AllowedIsa();
  Isa best = Isa::kScalar;
  for (const Isa isa : kAllIsas) {
    if (isa <= allowed && IsaSupported(isa)) best = isa;
  }
  return best;
}

bool IsaSupported(Isa isa) {
  // The built-in also checks that the operating system saves the registers.
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
  return false;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace shardshift::kernels
