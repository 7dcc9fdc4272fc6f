// Signals by which schedulers and people ask a program to end.
// SPDX-License-Identifier: Apache-2.0
#ifndef SHARDSHIFT_TOOLS_STOP_SIGNAL_H_
#define SHARDSHIFT_TOOLS_STOP_SIGNAL_H_

namespace shardshift {

// From now on SIGTERM, SIGINT and SIGUSR1 (which mpirun hands on to all ranks)
// end this process no more, and interrupt no system call, however often they
// come.
void CatchStopSignals();

// The first of them that came, or 0.
int CaughtStopSignal();

}  // namespace shardshift

#endif  // SHARDSHIFT_TOOLS_STOP_SIGNAL_H_
