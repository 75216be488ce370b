"""Calls C functions on files of one directory and prints what they answer; see symbols.rs.

Run once on a sealed directory under the shield and once on a plain one without: the answers must be the same.
Arguments: the directory.
"""
import ctypes, errno, os, sys, zlib

root = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
for name in ("fopen", "fopen64", "fdopen", "freopen"):
    getattr(libc, name).restype = ctypes.c_void_p
for name in ("fread", "fwrite"):
    getattr(libc, name).restype = ctypes.c_size_t
    getattr(libc, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
for name in ("fclose", "fileno", "fileno_unlocked", "fflush", "ftell", "rewind", "feof", "ferror", "fgetc", "setbuf"):
    getattr(libc, name).argtypes = [ctypes.c_void_p]
libc.ftell.restype = ctypes.c_long
libc.fseek.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
libc.ftruncate.argtypes = [ctypes.c_int, ctypes.c_long]
libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
libc.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for name in ("pread", "pwrite", "read", "write"):
    getattr(libc, name).restype = ctypes.c_ssize_t


def say(*words):
    print(*words, flush=True)


def path(name):
    return os.path.join(root, name).encode()


def failure():
    return errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())


def sizes(name):
    """The size by every function that tells it."""
    found = [os.stat(path(name)).st_size, os.lstat(path(name)).st_size]
    fd = os.open(path(name), os.O_RDONLY)
    found += [os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END)]
    directory = os.open(root, os.O_RDONLY)
    found.append(os.stat(name, dir_fd=directory).st_size)
    buffer = ctypes.create_string_buffer(256)
    for call, arguments in (
        ("stat", (path(name), buffer)),
        ("stat64", (path(name), buffer)),
        ("lstat64", (path(name), buffer)),
        ("fstat64", (fd, buffer)),
        ("fstatat64", (directory, name.encode(), buffer, 0)),
        ("__xstat64", (1, path(name), buffer)),
        ("__fxstat64", (1, fd, buffer)),
        ("__fxstatat", (1, directory, name.encode(), buffer, 0)),
    ):
        try:
            function = getattr(libc, call)
        except AttributeError:
            continue
        if function(*arguments) == 0:
            found.append(int.from_bytes(buffer.raw[48:56], "little"))
    for arguments in ((directory, name.encode(), 0), (fd, b"", 0x1000)):
        assert libc.statx(arguments[0], arguments[1], arguments[2], 0x7FF, buffer) == 0
        found.append(int.from_bytes(buffer.raw[40:48], "little"))
    os.close(fd)
    os.close(directory)
    return sorted(set(found))


def whole(name):
    with open(path(name), "rb", buffering=0) as file:
        return file.readall()


def digest(data):
    return len(data), hash_of(data)


def hash_of(data):
    return zlib.crc32(data)


def streams(name):
    """Writes, reads, seeks and cuts through a stream of the C library."""
    say(name, "missing", libc.fopen(path(name), b"r"), failure())
    say(name, "mode", libc.fopen(path(name), b"q"), failure())
    stream = libc.fopen(path(name), b"wb")
    text = b"canary of a stream\n" * 700
    say(name, libc.fwrite(text, 1, len(text), stream), libc.ftell(stream), libc.fputs(b"end\n", stream))
    say(name, libc.fflush(stream), sizes(name))
    fd = libc.fileno(stream)
    say(name, "fileno", fd >= 0, fd == libc.fileno_unlocked(stream), os.fstat(fd).st_size, os.fsync(fd))
    say(name, "cut", libc.ftruncate(fd, 5001), os.fstat(fd).st_size, libc.fclose(stream))
    try:
        os.fstat(fd)
        say("still open")
    except OSError as error:
        say(name, errno.errorcode[error.errno])
    say(name, sizes(name), digest(whole(name)))
    for mode, extra in ((b"a", b"appended"), (b"ab", b"again"), (b"a", b"x" * 9000), (b"ae", b"y")):
        stream = libc.fopen64(path(name), mode)
        say(name, mode, libc.ftell(stream), libc.fputs(extra, stream), libc.ftell(stream), libc.fclose(stream), sizes(name))
    stream = libc.fopen(path(name), b"rb")
    buffer = ctypes.create_string_buffer(20000)
    for offset, whence in ((0, 2), (100, 0), (50, 1), (-7, 2), (-30, 1), (4090, 0), (99999, 0)):
        say(name, libc.fseek(stream, offset, whence), libc.ftell(stream), libc.fread(buffer, 1, 77, stream), buffer.raw[:77])
    say(name, libc.feof(stream), libc.ferror(stream), libc.rewind(stream) and 0, libc.fgetc(stream))
    say(name, libc.fclose(stream))
    fd = os.open(path(name), os.O_WRONLY)
    stream = libc.fdopen(fd, b"w")
    say(name, libc.fseek(stream, 4000, 0), libc.fwrite(b"W" * 300, 1, 300, stream), libc.ftell(stream), libc.fseek(stream, -10, 1))
    say(name, libc.fputs(b"V", stream), libc.fseek(stream, -1, 2), libc.fputs(b"end", stream), libc.fclose(stream), digest(whole(name)))
    stream = libc.fopen(path(name), b"r")
    libc.setvbuf(stream, None, 2, 0)
    say(name, "unbuffered", libc.fread(buffer, 10, 500, stream), hash_of(buffer.raw[:5000]), libc.fputs(b"x", stream), libc.fclose(stream))
    say(name, "exclusive", libc.fopen(path(name), b"wx"), failure())
    fd = os.open(path(name), os.O_RDWR)
    stream = libc.fdopen(fd, b"a")
    say(name, "fdopen", libc.fileno(stream) == fd, libc.fputs(b"tail", stream), libc.fclose(stream), sizes(name))
    stream = libc.fopen(path(name), b"w")
    say(name, "emptied", libc.fclose(stream), sizes(name), whole(name))
    if not name.endswith("PG_VERSION"):
        stream = libc.fopen(path(name), b"w")
        say(name, libc.fputs(b"canary that stays", stream), libc.fclose(stream), sizes(name))


def descriptors(name, renamed):
    """The same through descriptors."""
    fd = os.open(path(name), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    say(name, os.write(fd, b"first" * 1000), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size)
    try:
        os.read(fd, 1)
    except OSError as error:
        say(name, "read", errno.errorcode[error.errno])
    say(name, os.pwrite(fd, b"second", 4094), os.lseek(fd, -3, os.SEEK_END), os.write(fd, b"1234567"))
    copy = os.dup(fd)
    say(name, os.write(copy, b"8"), os.lseek(fd, 0, os.SEEK_CUR), os.close(copy))
    say(name, os.ftruncate(fd, 8000), os.fstat(fd).st_size, os.ftruncate(fd, 4500), os.fstat(fd).st_size, os.close(fd))
    say(name, sizes(name), digest(whole(name)))
    os.truncate(path(name), 4321)
    say(name, "truncate", sizes(name), digest(whole(name)))
    fd = os.open(path(name), os.O_RDWR | os.O_APPEND)
    say(name, os.write(fd, b"a" * 5000), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size)
    import fcntl
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    say(name, bool(flags & os.O_APPEND), flags & os.O_ACCMODE)
    os.lseek(fd, 10, os.SEEK_SET)
    say(name, os.read(fd, 20), os.readv(fd, [bytearray(5), bytearray(7)]), os.preadv(fd, [bytearray(5000)], 4000), os.close(fd))
    say(name, os.stat(path(name)).st_nlink, os.access(path(name), os.R_OK), os.rename(path(name), path(renamed)))
    say(name, digest(whole(renamed)), os.unlink(path(renamed)))


os.mkdir(path("pg_stat"))
os.mkdir(path("pg_stat_tmp"))
os.makedirs(path("pg_logical/mappings"))
os.makedirs(path("base/5"))
os.mkdir(path("pg_twophase"))
for name in ("pg_stat/pgstat.stat", "pg_stat_tmp/pgss_query_texts.stat", "an_extension.file", "base/5/PG_VERSION"):
    streams(name)
for name, renamed in (
    ("pg_twophase/00000001.tmp", "pg_twophase/00000001"),
    ("pg_logical/mappings/map-5-4e1-0_256AB30-2d9-2dc", "pg_logical/mappings/map-5-4e1-0_256AB30-2d9-2dd"),
    ("an_extension.own", "an_extension.other"),
    ("one.conf", "other.conf"),
):
    descriptors(name, renamed)

# Reopening a stream as a sealed file, and a sealed stream as something else: see symbols.rs.
if len(sys.argv) > 2:
    stream = libc.fopen(path("PG_VERSION"), b"w")
    print("refused:", libc.freopen(path("an_extension.file"), b"w", stream), failure())
    stream = libc.fopen(path("an_extension.file"), b"w")
    print("refused:", libc.freopen(path("PG_VERSION"), b"w", stream), failure())
    for mode in (b"r+", b"w+b", b"a+"):
        print("refused:", libc.fopen(path("an_extension.file"), mode), failure())
    print("hidden:", libc.fopen(path("strongroom.header"), b"r"), failure(), sorted(name for name in os.listdir(root) if "strong" in name))
    for call in (os.stat, os.lstat):
        try:
            call(path("strongroom.header"))
            print("found")
        except FileNotFoundError:
            print("hidden")
