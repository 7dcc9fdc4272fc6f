// `reshard formats`: which formats can be read and written.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_RESHARD_FORMATS_H_
#define SHARDSHIFT_TOOLS_RESHARD_FORMATS_H_

namespace shardshift {

// argv[0] is the subcommand. Gives the exit code.
int FormatsMain(int argc, char** argv);

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_RESHARD_FORMATS_H_
