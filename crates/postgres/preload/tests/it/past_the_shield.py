"""Calls that once wrote into a sealed directory in clear; see past_the_shield.rs. Run under the shield.

Arguments: the sealed directory, and a directory outside of it."""
import ctypes, errno, os, sys

root, outside = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
for name in ("__write", "__read", "__pwrite64", "__pread64"):
    getattr(libc, name).restype = ctypes.c_ssize_t
TEXT = b"MARKER-IN-CLEAR " * 64


def path(name):
    return os.path.join(root, name)


def made(name, flags=0):
    return os.open(path(name), os.O_CREAT | os.O_RDWR | flags, 0o600)


def second_names():
    fd = libc.__open(path("one").encode(), os.O_CREAT | os.O_RDWR, 0o600)
    assert libc.__write(fd, TEXT, len(TEXT)) == len(TEXT)
    assert libc.__lseek(fd, 0, os.SEEK_SET) == 0
    into = ctypes.create_string_buffer(len(TEXT))
    assert libc.__read(fd, into, len(TEXT)) == len(TEXT) and into.raw == TEXT
    assert libc.__close(fd) == 0
    fd = libc.__open64(path("two").encode(), os.O_CREAT | os.O_RDWR, 0o600)
    assert libc.__pwrite64(fd, TEXT, len(TEXT), ctypes.c_long(0)) == len(TEXT)
    assert libc.__pread64(fd, into, len(TEXT), ctypes.c_long(0)) == len(TEXT) and into.raw == TEXT
    copy = libc.__fcntl(fd, 0, 0)  # F_DUPFD
    assert copy >= 0 and os.pread(copy, 6, 0) == TEXT[:6]
    assert libc.__dup2(fd, copy) == copy and os.pread(copy, 6, 0) == TEXT[:6]
    os.close(copy)
    os.close(fd)
    assert open(path("two"), "rb").read() == TEXT


class Request(ctypes.Structure):
    """`struct aiocb` as far as it is used (aio.h of glibc, 64 bits)."""

    _fields_ = [
        ("fd", ctypes.c_int), ("opcode", ctypes.c_int), ("priority", ctypes.c_int), ("buffer", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t), ("event", ctypes.c_char * 64), ("private", ctypes.c_char * 40),
        ("offset", ctypes.c_long), ("reserved", ctypes.c_char * 32),
    ]


def lists_of_requests():
    sealed, clear = made("three"), os.open(os.path.join(outside, "clear"), os.O_CREAT | os.O_RDWR, 0o600)
    kept = ctypes.create_string_buffer(TEXT)
    for name in ("lio_listio", "lio_listio64"):
        for fd, expected in ((sealed, -1), (clear, 0)):
            request = Request(fd=fd, opcode=1, buffer=ctypes.addressof(kept), bytes=len(TEXT))
            requests = (ctypes.POINTER(Request) * 1)(ctypes.pointer(request))
            assert getattr(libc, name)(0, requests, 1, None) == expected, (name, fd)
            assert expected == 0 or ctypes.get_errno() == errno.EINVAL
    assert os.fstat(sealed).st_size == 0 and os.fstat(clear).st_size == len(TEXT)


def formatted():
    sealed, clear = made("four"), os.open(os.path.join(outside, "formatted"), os.O_CREAT | os.O_RDWR, 0o600)
    numbers = [ctypes.c_int(number) for number in range(12)]
    reals = [ctypes.c_double(number + 0.5) for number in range(10)]
    form = b"MARKER-IN-CLEAR %s " + b" %d" * 12 + b" %.1f" * 10
    expected = form % ((b"text",) + tuple(range(12)) + tuple(number + 0.5 for number in range(10)))
    for fd, length in ((sealed, -1), (clear, len(expected))):
        assert libc.dprintf(fd, form, b"text", *numbers, *reals) == length, fd
    assert os.pread(clear, 1000, 0) == expected, os.pread(clear, 1000, 0)
    assert libc.__dprintf_chk(clear, 1, b" and %d", 7) == 6
    assert libc.__dprintf_chk(sealed, 1, b"MARKER-IN-CLEAR %d", 7) == -1
    assert os.fstat(sealed).st_size == 0


def file_actions():
    actions = ctypes.create_string_buffer(256)
    assert libc.posix_spawn_file_actions_init(actions) == 0
    add = libc.posix_spawn_file_actions_addopen
    flags = os.O_CREAT | os.O_WRONLY
    assert add(actions, 1, path("five").encode(), flags, 0o600) == errno.EACCES
    assert add(actions, 1, path("strongroom.header").encode(), flags, 0o600) == errno.EACCES
    assert add(actions, 1, os.path.join(outside, "spawned").encode(), flags, 0o600) == 0
    pid, argv = ctypes.c_int(), (ctypes.c_char_p * 3)(b"/bin/echo", b"said", None)
    assert libc.posix_spawn(ctypes.byref(pid), b"/bin/echo", actions, None, argv, None) == 0
    assert os.waitpid(pid.value, 0)[1] == 0
    assert open(os.path.join(outside, "spawned")).read() == "said\n"


def dangling_links():
    os.symlink(path("six"), os.path.join(outside, "direct"))
    os.symlink("direct", os.path.join(outside, "over another"))
    os.symlink(os.path.relpath(path("seven"), outside), os.path.join(outside, "relative"))
    for link, target in (("over another", "six"), ("relative", "seven")):
        with open(os.path.join(outside, link), "wb", buffering=0) as file:
            file.write(TEXT)
        assert open(path(target), "rb").read() == TEXT
    os.symlink("loop", os.path.join(outside, "loop"))
    try:
        open(os.path.join(outside, "loop"), "wb")
    except OSError as error:
        assert error.errno == errno.ELOOP
    os.symlink("elsewhere", os.path.join(outside, "harmless"))
    with open(os.path.join(outside, "harmless"), "wb") as file:
        file.write(b"outside")
    assert open(os.path.join(outside, "elsewhere"), "rb").read() == b"outside"


def directories():
    os.mkdir(path("directory"))
    with open(path("directory/inside"), "wb") as file:
        file.write(TEXT)
    os.mkdir(path("log"))
    for target in ("log/moved", "log"):
        try:
            os.rename(path("directory"), path(target))
        except OSError as error:
            assert error.errno == errno.EXDEV, error
            continue
        raise AssertionError("moved to %s" % target)
    os.mkdir(path("empty"))
    os.rename(path("empty"), path("log/empty"))
    os.rename(path("directory"), path("another"))
    assert open(path("another/inside"), "rb").read() == TEXT


for call in (second_names, lists_of_requests, formatted, file_actions, dangling_links, directories):
    call()
    print(call.__name__, flush=True)
