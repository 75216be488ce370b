/* The extension in a C program of many threads and many connections, for valgrind and for the
   address sanitizer: a shared cache whose connections are closed in every order, connections
   without a mutex, sqlite3_shutdown() and loading again, and statements that fail.
   Arguments: the extension, and an empty directory. The exit status is 1 where a result is wrong.
   With a third argument, "leak" or "use-after-free", it makes that mistake: the tools have to
   report it. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_VARIABLE "STRONGROOM_MEMORY_TEST_KEY"
#define OTHER_VARIABLE "STRONGROOM_MEMORY_TEST_OTHER_KEY"
#define THREADS 4
#define ROWS 50

static const char *directory;

#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                     \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static sqlite3 *opened(const char *name, const char *parameters, int flags) {
    sqlite3 *db = NULL;
    char uri[1024];
    snprintf(uri, sizeof uri, "file:%s/%s?key_env=%s%s", directory, name, KEY_VARIABLE, parameters);
    flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
    int rc = sqlite3_open_v2(uri, &db, flags, NULL);
    if (rc != SQLITE_OK) fprintf(stderr, "%s: %s\n", name, sqlite3_errmsg(db));
    CHECK(rc == SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    return db;
}

static void run(sqlite3 *db, const char *sql) {
    char *message = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &message);
    if (rc != SQLITE_OK) fprintf(stderr, "%s: %s\n", sql, message);
    CHECK(rc == SQLITE_OK);
}

static int rows(sqlite3 *db) {
    sqlite3_stmt *statement = NULL;
    CHECK(sqlite3_prepare_v2(db, "SELECT count(*) FROM t", -1, &statement, NULL) == SQLITE_OK);
    CHECK(sqlite3_step(statement) == SQLITE_ROW);
    int count = sqlite3_column_int(statement, 0);
    CHECK(sqlite3_finalize(statement) == SQLITE_OK);
    return count;
}

static void fill(sqlite3 *db) {
    run(db, "BEGIN");
    for (int row = 0; row < ROWS; row++) run(db, "INSERT INTO t(b) VALUES (hex(randomblob(300)))");
    run(db, "COMMIT");
}

/* The first connection of a process loads the extension, as a program would. */
static void load(const char *extension) {
    sqlite3 *db = NULL;
    char *message = NULL;
    CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK);
    CHECK(sqlite3_enable_load_extension(db, 1) == SQLITE_OK);
    int rc = sqlite3_load_extension(db, extension, NULL, &message);
    if (rc != SQLITE_OK) fprintf(stderr, "%s\n", message);
    CHECK(rc == SQLITE_OK);
    CHECK(sqlite3_close(db) == SQLITE_OK);
}

static void every_journal_mode(void) {
    static const char *modes[] = {"DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"};
    for (size_t mode = 0; mode < sizeof modes / sizeof *modes; mode++) {
        char name[32], sql[64];
        snprintf(name, sizeof name, "mode-%zu.db", mode);
        snprintf(sql, sizeof sql, "PRAGMA journal_mode=%s", modes[mode]);
        sqlite3 *db = opened(name, "", 0);
        run(db, sql);
        run(db, "PRAGMA cache_size=5; PRAGMA temp_store=FILE");
        run(db, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b)");
        fill(db);
        run(db, "BEGIN; UPDATE t SET b = 'other' || b; SAVEPOINT s; DELETE FROM t");
        run(db, "ROLLBACK TO s; ROLLBACK");
        CHECK(rows(db) == ROWS);
        run(db, "VACUUM");
        CHECK(sqlite3_close(db) == SQLITE_OK);
    }
}

static void shared_caches(void) {
    static const int orders[][3] = {
        {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0},
    };
    sqlite3 *maker = opened("shared.db", "", 0);
    run(maker, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)");
    fill(maker);
    CHECK(sqlite3_close(maker) == SQLITE_OK);
    for (int order = 0; order < 6; order++) {
        sqlite3 *shared[3];
        for (int each = 0; each < 3; each++) {
            shared[each] = opened("shared.db", "&cache=shared", 0);
            CHECK(rows(shared[each]) == ROWS);
        }
        for (int each = 0; each < 3; each++) {
            char name[32], sql[1200];
            CHECK(sqlite3_close(shared[orders[order][each]]) == SQLITE_OK);
            snprintf(name, sizeof name, "other-%d-%d.db", order, each);
            sqlite3 *other = opened(name, "", SQLITE_OPEN_NOMUTEX);
            run(other, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)");
            snprintf(sql, sizeof sql, "VACUUM INTO 'file:%s/copy-%s?key_env=%s'", directory, name,
                     OTHER_VARIABLE);
            run(other, sql);
            CHECK(sqlite3_close(other) == SQLITE_OK);
        }
    }
}

static void *one_thread(void *number) {
    char name[32];
    snprintf(name, sizeof name, "thread-%d.db", *(int *)number);
    for (int round = 0; round < 3; round++) {
        sqlite3 *db = opened(name, "", SQLITE_OPEN_NOMUTEX);
        run(db, "CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b TEXT)");
        fill(db);
        CHECK(rows(db) == ROWS * (round + 1));
        CHECK(sqlite3_close(db) == SQLITE_OK);
    }
    return NULL;
}

static void threads_without_a_mutex(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int each = 0; each < THREADS; each++) {
        numbers[each] = each;
        CHECK(pthread_create(&threads[each], NULL, one_thread, &numbers[each]) == 0);
    }
    for (int each = 0; each < THREADS; each++) CHECK(pthread_join(threads[each], NULL) == 0);
}

static void what_is_refused(void) {
    sqlite3 *db = NULL;
    char uri[1024];
    snprintf(uri, sizeof uri, "file:%s/shared.db?key_env=%s", directory, OTHER_VARIABLE);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI;
    int rc = sqlite3_open_v2(uri, &db, flags, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "SELECT count(*) FROM t", NULL, NULL, NULL);
    CHECK(rc != SQLITE_OK);
    sqlite3_close(db);
    db = opened("shared.db", "", 0);
    CHECK(sqlite3_exec(db, "PRAGMA page_size=8192; VACUUM", NULL, NULL, NULL) != SQLITE_OK);
    CHECK(rows(db) == ROWS);
    CHECK(sqlite3_close(db) == SQLITE_OK);
}

/* Leaks memory, or reads memory that was freed: the test checks that valgrind or the sanitizer
   reports it. */
static int misuse_memory(const char *mistake) {
    char *volatile memory = malloc(100);
    CHECK(memory != NULL);
    memset(memory, 1, 100);
    if (strcmp(mistake, "leak") == 0) {
        memory = NULL;
        return 0;
    }
    char *volatile kept = memory;
    free(memory);
    return kept[50] == 2;
}

int main(int count, char **arguments) {
    if (count == 4) return misuse_memory(arguments[3]);
    CHECK(count == 3);
    directory = arguments[2];
    setenv(KEY_VARIABLE, "1111111111111111111111111111111111111111111111111111111111111111", 1);
    setenv(OTHER_VARIABLE, "2222222222222222222222222222222222222222222222222222222222222222", 1);
    load(arguments[1]);
    every_journal_mode();
    shared_caches();
    threads_without_a_mutex();
    what_is_refused();
    for (int again = 0; again < 3; again++) {
        CHECK(sqlite3_shutdown() == SQLITE_OK);
        CHECK(sqlite3_initialize() == SQLITE_OK);
        load(arguments[1]);
        sqlite3 *db = opened("shared.db", "", 0);
        CHECK(rows(db) == ROWS);
        CHECK(sqlite3_close(db) == SQLITE_OK);
    }
    puts("memory: every result is right");
    return 0;
}
