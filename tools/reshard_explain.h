// `reshard explain CKPT [layout]`: what the ranks of a layout hold.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_EXPLAIN_H_
#define SHARDSHIFT_TOOLS_RESHARD_EXPLAIN_H_

namespace shardshift {

// The program; argv[0] is "explain". Gives its exit code.
int ExplainMain(int argc, char** argv);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_EXPLAIN_H_
