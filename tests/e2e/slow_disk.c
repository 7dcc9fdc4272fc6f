/* A disk that takes its time, for a program that is started with LD_PRELOAD:
   each sync of a file whose name contains SLOW_DISK_FILE takes
   SLOW_DISK_SECONDS longer, whatever signals come meanwhile.
   SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fsync(int fd);

int fsync(int fd) {
  char link[64], path[4096];
  const char* name = getenv("SLOW_DISK_FILE");
  const char* seconds = getenv("SLOW_DISK_SECONDS");
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length > 0 && name != NULL && seconds != NULL) {
    path[length] = '\0';
    if (strstr(path, name) != NULL) {
      const double wait = atof(seconds);
      struct timespec left = {(time_t)wait,
                              (long)(1e9 * (wait - (double)(time_t)wait))};
      while (nanosleep(&left, &left) != 0) {
      }
    }
  }
  return (int)syscall(SYS_fsync, fd);
}
