/* One process of one engine: reads commands from standard input, one a line, and answers each that measures with one line.
 *
 * The same source is compiled, with the same options, against each engine's amalgamation (build-peers). The loops are here,
 * so that no host language stands between the clock and the engine.
 *
 *   extension PATH     loads it through a connection in memory
 *   uri TEXT           what `open`, `opens` and `hold` open
 *   init SQL           runs after each open, within it: keys and settings
 *   open | close
 *   sql SQL            not measured; rows are dropped
 *   time SQL           every row is read; a digest of all values
 *   reads N SEED LAST one|each SQL           ?1: a random number in 1..LAST; digest: the sum of the first column
 *   updates N SEED LAST one|each VALUE SQL   ?1 as above, ?2: VALUE
 *   opens N SQL        open, init, SQL, close: the median of N
 *   hold N SQL         opens N more connections, runs SQL on each: bytes of heap and of locked memory that each holds
 *   cold PATH          drops the file's pages from the system's cache
 *   about              version, source id and compiler
 *
 * An answer is "seconds digest". Must not: measure anything but what stands between begin() and end().
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sqlite3.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT
#endif

#define INITS_MAX 16
#define OPENS_MAX 1000

static char *inits[INITS_MAX];
static int init_count;
static char *uri;
static sqlite3 *db;
static struct timespec began;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void begin(void) {
    clock_gettime(CLOCK_MONOTONIC, &began);
    CALLGRIND_TOGGLE_COLLECT;
}

static double end(void) {
    struct timespec now;
    CALLGRIND_TOGGLE_COLLECT;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

static void answer(double seconds, uint64_t digest) {
    printf("%.9f %016llx\n", seconds, (unsigned long long)digest);
    fflush(stdout);
}

static void check(sqlite3 *on, int rc, const char *what) {
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) fail(what, on ? sqlite3_errmsg(on) : sqlite3_errstr(rc));
}

static void execute(sqlite3 *on, const char *sql) {
    check(on, sqlite3_exec(on, sql, NULL, NULL, NULL), sql);
}

static sqlite3 *opened(void) {
    sqlite3 *made = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    check(made, sqlite3_open_v2(uri, &made, flags, NULL), uri);
    for (int i = 0; i < init_count; i++) execute(made, inits[i]);
    return made;
}

static sqlite3_stmt *prepared(sqlite3 *on, const char *sql) {
    sqlite3_stmt *statement = NULL;
    check(on, sqlite3_prepare_v2(on, sql, -1, &statement, NULL), sql);
    return statement;
}

/* FNV-1a, 64 bits: to compare results, not against anybody. */
static uint64_t mixed(uint64_t hash, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < len; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t all_rows(sqlite3 *on, const char *sql) {
    sqlite3_stmt *statement = prepared(on, sql);
    uint64_t hash = 0xcbf29ce484222325u;
    int rc, columns = sqlite3_column_count(statement);
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
        for (int i = 0; i < columns; i++) {
            char number[40];
            const void *bytes = number;
            size_t len;
            if (sqlite3_column_type(statement, i) == SQLITE_FLOAT) {
                len = (size_t)snprintf(number, sizeof number, "%.9g", sqlite3_column_double(statement, i));
            } else {
                bytes = sqlite3_column_blob(statement, i);
                len = (size_t)sqlite3_column_bytes(statement, i);
            }
            hash = mixed(mixed(hash, bytes, len), "|", 1);
        }
    }
    check(on, rc, sql);
    sqlite3_finalize(statement);
    return hash;
}

/* SplitMix64 (Steele, Lea, Flood 2014), as benches/src/stats.rs has it: for choosing rows. */
static uint64_t state;
static int64_t up_to(int64_t last) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ (z >> 31)) >> 1) % last + 1;
}

struct loop {
    long count;
    int64_t last;
    int one;
    double value;
    char *sql;
};

/* "N SEED LAST one|each [VALUE] SQL" */
static struct loop loop_of(char *text, int with_value) {
    struct loop loop = {0};
    unsigned long long seed;
    long long last;
    char kind[8];
    int used = 0, more = 0;
    if (sscanf(text, "%ld %llu %lld %7s %n", &loop.count, &seed, &last, kind, &used) < 4) fail(text, "not a loop");
    if (with_value && sscanf(text + used, "%lf %n", &loop.value, &more) < 1) fail(text, "no value");
    state = seed;
    loop.last = last;
    loop.one = strcmp(kind, "one") == 0;
    loop.sql = text + used + more;
    return loop;
}

static void reads(char *text) {
    struct loop loop = loop_of(text, 0);
    sqlite3_stmt *statement = prepared(db, loop.sql);
    uint64_t sum = 0;
    begin();
    if (loop.one) execute(db, "BEGIN");
    for (long i = 0; i < loop.count; i++) {
        sqlite3_bind_int64(statement, 1, up_to(loop.last));
        int rc = sqlite3_step(statement);
        if (rc != SQLITE_ROW) fail(loop.sql, rc == SQLITE_DONE ? "no such row" : sqlite3_errmsg(db));
        sum += (uint64_t)sqlite3_column_int64(statement, 0);
        sqlite3_reset(statement);
    }
    if (loop.one) execute(db, "COMMIT");
    double seconds = end();
    sqlite3_finalize(statement);
    answer(seconds, sum);
}

static void updates(char *text) {
    struct loop loop = loop_of(text, 1);
    sqlite3_stmt *statement = prepared(db, loop.sql);
    uint64_t changed = 0;
    begin();
    if (loop.one) execute(db, "BEGIN IMMEDIATE");
    for (long i = 0; i < loop.count; i++) {
        sqlite3_bind_int64(statement, 1, up_to(loop.last));
        sqlite3_bind_double(statement, 2, loop.value);
        check(db, sqlite3_step(statement), loop.sql);
        changed += (uint64_t)sqlite3_changes(db);
        check(db, sqlite3_reset(statement), loop.sql);
    }
    if (loop.one) execute(db, "COMMIT");
    double seconds = end();
    sqlite3_finalize(statement);
    answer(seconds, changed);
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void opens(char *text) {
    static double seconds[OPENS_MAX];
    char *sql;
    long count = strtol(text, &sql, 10);
    uint64_t hash = 0;
    if (count < 1 || count > OPENS_MAX) fail(text, "how many?");
    /* The first loads what the process needs once. */
    for (long i = -1; i < count; i++) {
        begin();
        sqlite3 *made = opened();
        hash = all_rows(made, sql);
        check(made, sqlite3_close(made), "close");
        double took = end();
        if (i >= 0) seconds[i] = took;
    }
    qsort(seconds, (size_t)count, sizeof seconds[0], by_size);
    answer(seconds[count / 2], hash);
}

/* The heap, and what is locked: the VFS keeps keys apart from the heap. */
static size_t held_now(void) {
    struct mallinfo2 now = mallinfo2();
    size_t locked = 0;
    char line[200];
    FILE *status = fopen("/proc/self/status", "re");
    if (status == NULL) fail("/proc/self/status", "not readable");
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmLck: %zu", &locked) == 1) break;
    fclose(status);
    return now.uordblks + now.hblkhd + 1024 * locked;
}

/* "seconds" are bytes here. */
static void hold(char *text) {
    char *sql;
    long count = strtol(text, &sql, 10);
    if (count < 1 || count > OPENS_MAX) fail(text, "how many?");
    sqlite3 **held = calloc((size_t)count, sizeof *held);
    if (held == NULL) fail(text, "memory");
    uint64_t hash = all_rows(opened(), sql); /* What the process needs once. */
    size_t before = held_now();
    for (long i = 0; i < count; i++) {
        held[i] = opened();
        hash = all_rows(held[i], sql);
    }
    answer((double)(held_now() - before) / (double)count, hash);
    for (long i = 0; i < count; i++) sqlite3_close(held[i]);
    free(held);
}

static void cold(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fdatasync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) fail(path, "not dropped");
    close(file);
}

static void extension(const char *path) {
    sqlite3 *loader = NULL;
    char *why = NULL;
    check(loader, sqlite3_open(":memory:", &loader), "memory");
#ifdef SQLITE_OMIT_LOAD_EXTENSION
    fail(path, "this engine loads no extensions");
#else
    sqlite3_db_config(loader, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    if (sqlite3_load_extension(loader, path, NULL, &why) != SQLITE_OK) fail(path, why ? why : "not loaded");
#endif
    sqlite3_close(loader);
}

static void timed(const char *sql) {
    begin();
    uint64_t hash = all_rows(db, sql);
    answer(end(), hash);
}

static void run(char *word, char *rest) {
    if (strcmp(word, "extension") == 0) extension(rest);
    else if (strcmp(word, "uri") == 0) uri = strdup(rest);
    else if (strcmp(word, "init") == 0 && init_count < INITS_MAX) inits[init_count++] = strdup(rest);
    else if (strcmp(word, "open") == 0) db = opened();
    else if (strcmp(word, "close") == 0) check(db, sqlite3_close(db), "close"), db = NULL;
    else if (strcmp(word, "sql") == 0) execute(db, rest);
    else if (strcmp(word, "time") == 0) timed(rest);
    else if (strcmp(word, "reads") == 0) reads(rest);
    else if (strcmp(word, "updates") == 0) updates(rest);
    else if (strcmp(word, "opens") == 0) opens(rest);
    else if (strcmp(word, "hold") == 0) hold(rest);
    else if (strcmp(word, "cold") == 0) cold(rest);
    else if (strcmp(word, "about") == 0) printf("%s %s; gcc %s\n", sqlite3_libversion(), sqlite3_sourceid(), __VERSION__), fflush(stdout);
    else fail(word, "no such command");
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    while ((len = getline(&line, &room, stdin)) > 0) {
        if (line[len - 1] == '\n') line[len - 1] = 0;
        char *rest = strchr(line, ' ');
        if (rest != NULL) *rest++ = 0;
        run(line, rest ? rest : "");
    }
    free(line);
    return 0;
}
