/* Ends the process the moment before, or after, it deletes a super-journal: the commit point of a transaction over
   several databases. EXIT_AT is "before" or "after". Preloaded by super_journal.py; must not do anything else. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int unlink(const char *path) {
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    const char *when = getenv("EXIT_AT");
    int is_super = when && strstr(path, "-mj") != NULL;
    if (is_super && strcmp(when, "before") == 0) _exit(9);
    int result = next(path);
    if (is_super && strcmp(when, "after") == 0) _exit(9);
    return result;
}
