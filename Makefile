# Strongroom's front door: each target installs what it needs on a Debian machine that has a Rust
# toolchain.
#   make demo     build, and the tour: every line that it prints is a check; the first after some
#                 minutes
#   make test     every test, but for what takes long with confidential columns
#   make test-sqlite-memory  the SQLite extension under valgrind and the address sanitizer, all of
#                            it: minutes
#   make test-keyserver  the key server's longer tests: the fleet page in a browser, the interface
#                        by its description
#   make test-regress  PostgreSQL's own regression suites, sealed and plain: ten minutes
#   make test-regress-proxy  PostgreSQL's regression suite through the proxy for confidential
#                      columns
#   make test-applications  the test suites of Django and SQLAlchemy through that proxy
#   make test-drivers  the test suites of PostgreSQL's drivers through that proxy
#   make test-columns  the part of it that is about confidential columns: the PostgreSQL extension,
#                      and the whole with zone and proxy
#   make test-python   the part of it that is about the Python wheel
#   make fuzz     the part of it that runs the fuzz targets, a few seconds each
#   make wheel    the Python wheel of sealed SQLite
#   make test-volume   volumes in a virtual machine: boots, power cuts, stolen disks; an hour
#   make lint     formatting, the rules of the house (testing/tidy), clippy, documentation links
#   make audit    licences, sources and known vulnerabilities of the packages of others
#   make bench    the products beside stock SQLite and stock PostgreSQL, interleaved
#   make bench-sqlite   the part of it that is about sealed SQLite and its peers, SQLCipher and
#                       SQLite3 Multiple Ciphers
#   make bench-backup   backups beside plain ones, pgBackRest, restic, zstd and age; and the forty
#                       combinations, with their chart
#   make bench-volume   volumes in a virtual machine, beside plain disks
#   make bench-duckdb   another key for a DuckDB database beside DuckDB's own copy
#   make bench-columns  the part of it that is about confidential columns
SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
EXTENSION := $(abspath $(TARGET)/release/libstrongroom_sqlite.so)
SHIELD := $(abspath $(TARGET)/release/libstrongroom_shield.so)

.PHONY: install test-applications test-drivers test-regress-proxy test-count-often lint-workspace lint-extension audit audit-packages audit-tools test-parts-built fuzz bench-duckdb bench-sqlite bench-keyserver demo test test-sqlite-memory test-python wheel test-keyserver test-regress test-columns test-volume columns-beside columns-postgres bench-columns-oltp lint bench bench-backup bench-columns bench-volume deps deps-postgres deps-test build clean

# What the build needs, and what only the tests need: stock SQLite's shell, headers and Python
# module, stock PostgreSQL, an S3 server, and a debugger for core dumps. Nothing is installed when
# everything is there, and no server is left running.
deps:
	@packaging/install-debian gcc:cc libc6-dev:/usr/include/stdio.h "perl:/usr/share/perl/5*/IPC/Cmd.pm" pkg-config:pkg-config \
		"libclang-dev:/usr/lib/llvm-*/lib/libclang.so" libcryptsetup-dev:/usr/include/libcryptsetup.h

deps-postgres: deps
	@packaging/install-debian "postgresql:/usr/lib/postgresql/*/bin/postgres"
	@packaging/newest-postgresql

DUCKDB := $(abspath $(TARGET)/duckdb)
SQLITE_TOOLS := $(abspath $(TARGET)/sqlite-tools)
deps-test: deps-postgres
	@packaging/install-debian sqlite3:sqlite3 libsqlite3-dev:/usr/include/sqlite3ext.h python3:/usr/bin/python3 gdb:gdb \
		npm:npm python3-pip:pip3 strace:strace valgrind:valgrind pgbackrest:pgbackrest python3-venv:/usr/share/doc/python3-venv swtpm:swtpm swtpm-tools:swtpm_setup tpm2-tools:tpm2_createak openssl:openssl \
		qemu-system-x86:qemu-system-x86_64 busybox-static:/bin/busybox cryptsetup-bin:/usr/sbin/cryptsetup e2fsprogs:/usr/sbin/mke2fs \
		binutils:strip shellcheck:shellcheck faketime:faketime systemd:systemd-analyze curl:curl etcd-server:etcd softhsm2:softhsm2-util tang-common:/usr/libexec/tangd nginx-light:/usr/sbin/nginx
	@python3 -c 'import moto.server' 2>/dev/null || python3 -m pip install --quiet 'moto[server]' || \
		python3 -m pip install --quiet --break-system-packages 'moto[server]'
	@[ -x $(PYTHON_TOOLS)/bin/maturin ] || crates/sqlite/python/tools $(PYTHON_TOOLS)
	@python3 -c 'import kmip.services.server' 2>/dev/null || python3 -m pip install --quiet PyKMIP || \
		python3 -m pip install --quiet --break-system-packages PyKMIP

# Programs that know nothing of Strongroom and run on sealed databases, and two other products that
# encrypt SQLite's.
	@[ -e $(SQLITE_TOOLS)/ready ] || { python3 -m venv $(SQLITE_TOOLS) && $(SQLITE_TOOLS)/bin/pip install --quiet datasette==0.65.5 \
		sqlite-utils==4.2.1 litecli==1.17.1 sqlcipher3-wheels==0.5.7 apsw-sqlite3mc==3.54.0.0 && touch $(SQLITE_TOOLS)/ready; }

# Three DuckDBs, each in an environment of its own; 1.4 writes encrypted files only with an
# extension that comes by name too.
	@for version in 1.4.4 1.5.5 2.0.0; do [ -e $(DUCKDB)/$$version/ready ] || { python3 -m venv $(DUCKDB)/$$version && \
		$(DUCKDB)/$$version/bin/pip install --quiet duckdb==$$version && touch $(DUCKDB)/$$version/ready; } || exit 1; done
	@[ -e $(DUCKDB)/1.4.4/httpfs ] || { $(DUCKDB)/1.4.4/bin/pip install --quiet duckdb-extension-httpfs==1.4.4 && touch $(DUCKDB)/1.4.4/httpfs; }

# TOUR is the tour of `make demo`, which is built in the same run: what is built twice for two sets
# of packages takes minutes.
TOUR :=
# AUDITABLE=auditable has cargo-auditable write the list of packages into each binary (`make
# audit-tools` installs it).
AUDITABLE :=
build: deps
	PATH=$(TOOLS)/bin:$$PATH $(CARGO) $(AUDITABLE) build --locked --release -p strongroom-cli -p strongroom-sqlite-extension -p strongroom-sqlite-run -p strongroom-postgres-preload \
		--lib --bin strongroom $(TOUR)

# The one place that the guides, and the units in packaging/systemd, count on. PostgreSQL's server
# and root load these files: they are root's.
install:
	@[ -e $(TARGET)/release/strongroom ] || { echo "first: make build" >&2; exit 1; }
	install -D -m 755 $(TARGET)/release/strongroom $(DESTDIR)/usr/bin/strongroom
	install -D -m 755 $(TARGET)/release/libstrongroom_shield.so $(DESTDIR)/usr/lib/strongroom/libstrongroom_shield.so
	install -D -m 755 $(TARGET)/release/libstrongroom_sqlite.so $(DESTDIR)/usr/lib/strongroom/libstrongroom_sqlite.so
	install -D -m 755 $(TARGET)/release/libstrongroom_sqlite_run.so $(DESTDIR)/usr/lib/strongroom/libstrongroom_sqlite_run.so

demo:
	CARGO=$(CARGO) benches/tour/demo

# All with one profile, that of development, and with the features that the whole workspace with its
# tests asks for: the dependencies are built once. Cargo would build many of them again for `-p`,
# which asks for fewer features.
DEV := $(abspath $(TARGET)/debug)
# Tests of sealed SQLite start this program and kill it. A build with the feature `count-often` puts
# another program in its place, which cargo does not replace by the first one as long as it is
# there.
WORKER := $(DEV)/worker
# Many tests wait for a server, a disk or a clock: each program runs twice as many at once as there
# are processors, and two programs run at the same time.
TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: deps-test
	@rm -f $(WORKER)
	$(CARGO) build --locked --workspace --lib --bins --tests
	@nice -n 19 $(MAKE) --no-print-directory test-parts-built >$(TARGET)/test-parts.log 2>&1 & parts=$$!; failed=0; \
	STRONGROOM_DUCKDB=$(DUCKDB) STRONGROOM_SQLITE_TOOLS=$(SQLITE_TOOLS) STRONGROOM_EXT=$(DEV)/libstrongroom_sqlite.so STRONGROOM_EXTENSION=$(DEV)/libstrongroom_sqlite.so \
		STRONGROOM_SHIELD_LIB=$(DEV)/libstrongroom_shield.so STRONGROOM_COMMAND=$(DEV)/strongroom \
		RUST_TEST_THREADS=$(TEST_THREADS) CARGO=$(CARGO) testing/run-tests --locked --workspace || failed=1; \
	wait $$parts || { tail -30 $(TARGET)/test-parts.log; failed=1; }; exit $$failed
	$(MAKE) --no-print-directory -j 2 --output-sync=target BUILT=yes \
		COLUMNS_TESTS="--test committed --test it -- the_committed_script $(COLUMNS_USUAL:%=%::)" test-columns test-count-often fuzz test-python

# What the later parts of `make test` need is compiled while its first part runs, whose tests wait
# half of the time.
COUNT_OFTEN := $(CARGO) test --locked --workspace --features strongroom-testing/count-often --test simulation
test-count-often:
	$(COUNT_OFTEN) -- sealed_ freshness_ power_cuts; status=$$?; rm -f $(WORKER); exit $$status

test-parts-built: columns-postgres
	fuzz/run --build
	$(COLUMNS_DEV) crates/columns/extension/install dev
	cd crates/columns/extension && $(COLUMNS_DEV) $(CARGO) test --locked --workspace --no-run

# The part of the SQLite extension's tests under valgrind that takes minutes, with the part that
# `make test` has.
test-sqlite-memory: deps-test
	$(CARGO) build --locked -p strongroom-sqlite-extension
	STRONGROOM_EXT=$(DEV)/libstrongroom_sqlite.so $(CARGO) test --locked -p strongroom-sqlite --test stock -- --include-ignored memory::

# Each parser of outside bytes under libFuzzer, for seconds; FUZZ="--features sqlite,providers,proxy
# 60" has all, which takes minutes to build.
FUZZ ?= 4
fuzz: deps
	@packaging/install-debian g++:g++
	fuzz/run $(FUZZ)

# The Python wheel: built with the profile of the other tests, so that only the library's last link
# is new. With BUILT=yes, here and for the columns, the command is not built first: `make test` has
# built it.
PYTHON_TOOLS := $(abspath $(TARGET)/python)
test-python: deps-test
	$(if $(BUILT),,$(CARGO) build --locked -p strongroom-cli)
	CARGO_TARGET_DIR=$(abspath $(TARGET)) STRONGROOM_COMMAND=$(DEV)/strongroom crates/sqlite/python/test $(PYTHON_TOOLS)

wheel: deps
	@packaging/install-debian python3-venv:/usr/share/doc/python3-venv
	@[ -x $(PYTHON_TOOLS)/bin/maturin ] || crates/sqlite/python/tools $(PYTHON_TOOLS)
	cd crates/sqlite/python && CARGO_TARGET_DIR=$(abspath $(TARGET)) PATH=$(PYTHON_TOOLS)/bin:$$PATH maturin build --release --strip --out $(abspath $(TARGET)/wheels)

# The fleet page in Chromium. Screenshots are left in the target directory, to be looked at.
PLAYWRIGHT := $(abspath $(TARGET)/playwright)
test-keyserver: deps
	@packaging/install-debian chromium:chromium fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf nodejs:node npm:npm python3-pip:pip3
	@[ -e $(PLAYWRIGHT)/node_modules/axe-core/package.json ] || npm install --silent --no-audit --no-fund --prefix $(PLAYWRIGHT) playwright-core@1 axe-core@4
	@command -v schemathesis >/dev/null || python3 -m pip install --quiet schemathesis || \
		python3 -m pip install --quiet --break-system-packages schemathesis
	STRONGROOM_NODE_MODULES=$(PLAYWRIGHT)/node_modules STRONGROOM_SCREENSHOTS=$(abspath $(TARGET)/screenshots) \
		$(CARGO) test --locked -p strongroom-keys-server --test it -- --ignored page_browser:: foreign_browser:: schemathesis::

test-regress: deps-postgres build
	@packaging/install-debian make:make bzip2:bzip2
	testing/postgres/regress/run --library $(SHIELD) --command $(abspath $(TARGET)/release/strongroom) --cache $(abspath $(TARGET)/postgresql)

# The program that runs a command beside a server with the extension, its zone and a proxy.
BESIDE := crates/columns/extension/target/debug/strongroom-columns-beside
columns-beside: columns-postgres
	$(if $(BUILT),,$(CARGO) build --locked -p strongroom-cli)
	$(COLUMNS_DEV) crates/columns/extension/install dev
	cd crates/columns/extension && $(COLUMNS_DEV) $(CARGO) build --locked -p strongroom-columns-testing --bin strongroom-columns-beside

# PostgreSQL's regression suite in a database with confidential columns, through the proxy and at
# the server: some ten minutes. TESTS names single tests.
TESTS :=
test-regress-proxy: columns-beside
	$(COLUMNS_DEV) testing/postgres/regress/through-proxy --beside $(BESIDE) \
		--cache $(abspath $(TARGET)/postgresql) $(TESTS)

# The test suites of Django and SQLAlchemy through the proxy, some ten minutes; SUITES names some of
# django, sqlalchemy, confidential and recipes.
test-applications: columns-beside
	@packaging/install-debian python3-venv:/usr/share/doc/python3-venv
	$(COLUMNS_DEV) testing/applications/run --beside $(BESIDE) \
		--cache $(abspath $(TARGET)/applications) $(SUITES)

# The test suites of drivers through the proxy, some ten minutes; SUITES names some of psycopg2,
# asyncpg, pgx and, with SOURCES="--source SUITE=DIRECTORY", psycopg, node and jdbc.
SOURCES :=
test-drivers: columns-beside
	@packaging/install-debian python3-venv:/usr/share/doc/python3-venv
	$(COLUMNS_DEV) testing/applications/drivers --beside $(BESIDE) \
		--cache $(abspath $(TARGET)/applications) $(SOURCES) $(SUITES)

VOLUME_LOADS := fio:fio sysbench:sysbench mariadb-server-core:mariadbd mariadb-client-core:mariadb
# Volumes in a virtual machine of emulated hardware. The kernel's package is downloaded and unpacked
# below the target directory, never installed.
test-volume: deps-test build
	@packaging/install-debian $(VOLUME_LOADS) mmdebstrap:mmdebstrap
	$(CARGO) build --locked --release -p strongroom-volume-token
	STRONGROOM_VOLUME_TOKEN=$(abspath $(TARGET)/release/libstrongroom_volume_token.a) \
		STRONGROOM_COMMAND=$(abspath $(TARGET)/release/strongroom) $(CARGO) test --locked -p strongroom-testing-vm --no-fail-fast -- \
		--include-ignored --nocapture --test-threads=1

# The extension of confidential columns is a workspace of its own, because it is built against one
# PostgreSQL. Its tests run the whole: server, zone and proxy. It is installed into a copy of
# PostgreSQL of its own; debuggers are needed for core dumps.
COLUMNS_POSTGRES := $(abspath $(TARGET)/postgresql-15)
COLUMNS_CONFIG := PGRX_PG_CONFIG_PATH=$(COLUMNS_POSTGRES)/lib/postgresql/15/bin/pg_config
COLUMNS := STRONGROOM_COMMAND=$(abspath $(TARGET)/release/strongroom) $(COLUMNS_CONFIG)
COLUMNS_DEV := STRONGROOM_COMMAND=$(DEV)/strongroom $(COLUMNS_CONFIG)
columns-postgres: deps-postgres
	@packaging/install-debian "postgresql-server-dev-15:/usr/include/postgresql/15/server/postgres.h" gdb:gdb sysbench:sysbench
	crates/columns/extension/private-postgresql $(COLUMNS_POSTGRES)

# What `make test` runs of them: the shorter ones. The others are kills under load, recovery,
# replication, sweeps, conversions, full disks, TPC-C, TPC-H and sysbench.
COLUMNS_USUAL := answer_memo catalogs connections defaults definitions documents dumps equality faults ledgers lost_records machine operator ordinary owner_commands plans random results retired sets slot statements times uuids whole
COLUMNS_TESTS :=
test-columns: columns-postgres
	$(if $(BUILT),,$(CARGO) build --locked -p strongroom-cli)
	$(COLUMNS_DEV) crates/columns/extension/install dev
	cd crates/columns/extension && $(COLUMNS_DEV) $(CARGO) test --locked --workspace --no-fail-fast $(COLUMNS_TESTS)

# Transactions on confidential columns beside plain ones, in turns: some ten minutes.
bench-columns-oltp: columns-postgres build
	$(COLUMNS) crates/columns/extension/install release
	cd crates/columns/extension && $(COLUMNS) $(CARGO) run --locked --release -p strongroom-columns-testing --bin strongroom-bench-columns-oltp

# The extension is a workspace of its own, and is looked at against the installed PostgreSQL's
# headers. Both workspaces at once, by two jobs together: while one compiles C, which is one long
# step, the other has work.
COLUMNS_LINT := cd crates/columns/extension && PGRX_PG_CONFIG_PATH=/usr/lib/postgresql/15/bin/pg_config
lint: deps
	@packaging/install-debian "postgresql-server-dev-15:/usr/include/postgresql/15/server/postgres.h"
	$(CARGO) fmt --all --check
	$(CARGO) test --locked --quiet -p strongroom-tidy
	cd crates/columns/extension && $(CARGO) fmt --all --check
	$(MAKE) --no-print-directory -j $$(nproc) --output-sync=target lint-workspace lint-extension

lint-workspace:
	+$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	+RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

lint-extension:
	+$(COLUMNS_LINT) $(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	+$(COLUMNS_LINT) RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

# The packages of others: licences, sources and what must not come in, by deny.toml; known
# vulnerabilities where the database of advisories can be fetched; and whether a binary lists what
# it was built of. The tools are compiled below the target directory, without optimisation.
DENY_VERSION := 0.20.2
AUDITABLE_VERSION := 0.7.7
TOOLS := $(abspath $(TARGET))/tools
DENY := $(TOOLS)/bin/cargo-deny
audit-tools:
	@$(DENY) --version 2>/dev/null | grep -q ' $(DENY_VERSION)$$' || \
		CARGO_TARGET_DIR=$(TOOLS)/build $(CARGO) install --quiet --debug --locked --force --version $(DENY_VERSION) --root $(TOOLS) cargo-deny
	@grep -q '"cargo-auditable $(AUDITABLE_VERSION) ' $(TOOLS)/.crates.toml || \
		CARGO_TARGET_DIR=$(TOOLS)/build $(CARGO) install --quiet --debug --locked --force --version $(AUDITABLE_VERSION) --root $(TOOLS) cargo-auditable
	@rm -rf $(TOOLS)/build

# cargo-deny reads every package of the lock files, those for other systems too, which no build here
# has fetched.
audit-packages:
	+$(CARGO) fetch --quiet --locked
	+$(CARGO) fetch --quiet --locked --manifest-path crates/columns/extension/Cargo.toml

audit: audit-tools audit-packages
	$(DENY) --locked --offline --log-level error check licenses bans sources
	$(DENY) --locked --offline --config deny.toml --manifest-path crates/columns/extension/Cargo.toml --log-level error check licenses bans sources
	@if $(DENY) --locked fetch db >/dev/null 2>&1; then $(DENY) --locked check advisories; \
		else echo "audit: advisories were not checked, because their database cannot be fetched"; fi
	PATH=$(TOOLS)/bin:$$PATH $(CARGO) auditable build --locked --quiet -p strongroom-sqlite-run --target-dir $(TOOLS)/auditable
	packaging/list-packages $(TOOLS)/auditable/debug/libstrongroom_sqlite_run.so | grep '^strongroom-sqlite-run '

# PostgreSQL's user must be able to enter the directory.
BENCH_DIRECTORY ?= /var/tmp
bench: deps-postgres build bench-columns
	@packaging/install-debian valgrind:valgrind
	$(CARGO) run --locked --release -p strongroom-benches --bin strongroom-bench -- --rounds 7
	$(MAKE) --no-print-directory bench-sqlite
	$(CARGO) build --locked --release -p strongroom-benches-postgres
	STRONGROOM_BIN=$(TARGET)/release/strongroom $(TARGET)/release/strongroom-bench-postgres --directory $(BENCH_DIRECTORY)
	STRONGROOM_BIN=$(TARGET)/release/strongroom $(TARGET)/release/strongroom-bench-postgres --directory $(BENCH_DIRECTORY) --instructions
	$(MAKE) --no-print-directory bench-columns-oltp
	$(MAKE) --no-print-directory bench-backup

# Sealed SQLite beside stock SQLite, SQLCipher and SQLite3 Multiple Ciphers: half an hour.
SQLITE_BENCH ?= --instructions $(abspath $(TARGET))/sqlite-peers/profiles
bench-sqlite: deps
	@packaging/install-debian valgrind:valgrind libssl-dev:/usr/include/openssl/evp.h npm:npm python3:python3
	$(CARGO) build --locked --release -p strongroom-sqlite-extension
	$(CARGO) build --locked --release -p strongroom-benches-sqlite
	benches/sqlite/build-peers $(TARGET)/sqlite-peers
	$(TARGET)/release/strongroom-bench-sqlite --drivers $(TARGET)/sqlite-peers --extension $(EXTENSION) --directory $(BENCH_DIRECTORY) $(SQLITE_BENCH)

# Backups: some ten minutes a round. BACKUP_BENCH=--quick shows in a minute or two that everything
# runs.
BACKUP_BENCH ?= --rounds 3
bench-backup: deps-postgres build
	@packaging/install-debian pgbackrest:pgbackrest restic:restic age:age zstd:zstd
	$(CARGO) build --locked --release -p strongroom-benches-backup
	STRONGROOM_BIN=$(TARGET)/release/strongroom $(TARGET)/release/strongroom-bench-backup --directory $(BENCH_DIRECTORY) $(BACKUP_BENCH)
	STRONGROOM_BIN=$(TARGET)/release/strongroom $(TARGET)/release/strongroom-bench-backup --matrix --directory $(BENCH_DIRECTORY) $(BACKUP_BENCH)

# Volumes in the virtual machine, beside plain disks: some ten minutes a round. The figures are of
# emulated hardware.
VOLUME_BENCH ?= 3
bench-volume: deps-test build
	@packaging/install-debian $(VOLUME_LOADS)
	STRONGROOM_COMMAND=$(abspath $(TARGET)/release/strongroom) $(CARGO) run --locked --release -p strongroom-benches-vm \
		--bin strongroom-bench-volume-vm -- $(VOLUME_BENCH)

# The key server: some ten minutes. KEYSERVER_BENCH=--quick shows in half a minute that everything
# runs.
bench-keyserver: deps-test build
	$(CARGO) build --locked --release -p strongroom-benches-keyserver
	STRONGROOM_BIN=$(abspath $(TARGET)/release/strongroom) $(TARGET)/release/strongroom-bench-keyserver --directory $(BENCH_DIRECTORY) $(KEYSERVER_BENCH)

# DuckDB databases: another key and verification beside DuckDB's own copy. Some minutes.
bench-duckdb: deps-test build
	$(DUCKDB)/2.0.0/bin/python benches/duckdb/bench.py $(TARGET)/release/strongroom --directory $(BENCH_DIRECTORY)

# TPC-H on confidential columns beside plain ones.
bench-columns: columns-postgres build
	$(COLUMNS) crates/columns/extension/install release
	$(CARGO) build --locked --release -p strongroom-benches-columns
	$(COLUMNS) $(TARGET)/release/strongroom-bench-columns
	$(CARGO) bench --locked -p strongroom-columns-ring -p strongroom-columns-zone

clean:
	$(CARGO) clean
	rm -rf demo-out
