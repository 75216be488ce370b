//! Goal: root that is pointed at another user's directory acts as that user before it reads a byte
//! of it: nothing planted there runs as root, and no link leads root's hand elsewhere.
//!
//! Method: the real command as root on an instance, a keyring and databases of PostgreSQL's user.
//! Planted commands write down as whom they run, and system calls are looked at. `root_race.rs` has
//! the same with somebody who exchanges things meanwhile. Without root there is nothing to be
//! tried, and the tests say so.

use crate::instance;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use instance::root::{can_be_tried, library, owner, planted, ran_as, root_place};
use instance::{Place, Run, bindir, run};

/// The command as root, in a place that nobody else can change.
fn as_root(place: &Place, arguments: &[&str]) -> Run {
    run(place
        .as_is(arguments)
        .current_dir("/")
        .env("STRONGROOM_SHIELD_LIB", library(place)))
}

#[test]
fn a_planted_key_command_runs_as_the_owner() {
    if !can_be_tried() {
        return;
    }
    let place = Place::with_instance();
    place.write(
        "data/strongroom.conf",
        &format!("key_command = {}\n", planted(&place)),
    );
    let data = place.path("data");
    let data = data.to_str().unwrap();
    // What only shows.
    for command in [["pg", "status", "-D", data].as_slice(), &["inspect", data]] {
        let told = as_root(&place, command);
        assert!(told.err.contains("acting as user postgres"), "{}", told.err);
        told.succeeded();
    }
    let commands: &[&[&str]] = &[
        &["verify", data],
        &["pg", "controldata", "-D", data],
        &["pg", "run", "-D", data, "--", "true"],
        &["pg", "rotate", "-D", data, "--slots-only"],
        &["pg", "rotate", "-D", data, "--threads", "1"],
        &["pg", "decrypt", "-D", data, "--threads", "1"],
    ];
    for command in commands {
        let ran = as_root(&place, command);
        let told = ran.err.clone();
        ran.succeeded();
        assert!(
            told.contains("note: acting as user postgres, who owns "),
            "{told}"
        );
        let users = ran_as(&place);
        assert!(!users.is_empty(), "{command:?}: the command was not asked");
        assert!(
            users.iter().all(|user| *user == owner(&place)),
            "{command:?}: {users:?}"
        );
    }
}

#[test]
fn what_root_seals_is_the_owners() {
    if !can_be_tried() {
        return;
    }
    let place = Place::with_instance();
    let data = place.path("data");
    let data = data.to_str().unwrap();
    let (key, other) = (place.path("key"), place.path("other"));
    as_root(&place, &["pg", "decrypt", "-D", data]).succeeded();
    as_root(
        &place,
        &[
            "pg",
            "encrypt",
            "-D",
            data,
            "--key-file",
            key.to_str().unwrap(),
        ],
    )
    .succeeded();
    as_root(
        &place,
        &[
            "pg",
            "rotate",
            "-D",
            data,
            "--slots-only",
            "--new-key-file",
            other.to_str().unwrap(),
        ],
    )
    .succeeded();
    let everything = place.everything("data");
    assert!(
        everything
            .values()
            .all(|(_, user, _)| user.to_string() == owner(&place))
    );
    place.start(&[]).succeeded();
    place.stop();
}

#[test]
fn the_library_runs_no_command_that_another_user_named() {
    if !can_be_tried() {
        return;
    }
    let place = Place::with_instance();
    place.write(
        "data/strongroom.conf",
        &format!("key_command = {}\n", planted(&place)),
    );
    // Root itself, with the library in its environment: nobody gave up root here.
    let mut program = Command::new(bindir().join("pg_controldata"));
    let told = run(program
        .arg("-D")
        .arg(place.path("data"))
        .env("LD_PRELOAD", library(&place)));
    assert_ne!(told.code, 0, "{}", told.out);
    assert!(told.err.contains("SR-6022"), "{}", told.err);
    assert_eq!(ran_as(&place), Vec::<String>::new());
    // Nor one that a group may have written, for the owner.
    let mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path("data/strongroom.conf"), permissions).unwrap();
    };
    mode(0o660);
    place
        .strongroom(&["pg", "controldata", "-D", "data"])
        .ended_with(6, "SR-6022");
    mode(0o640);
    place
        .strongroom(&["pg", "controldata", "-D", "data"])
        .succeeded();
    assert_eq!(ran_as(&place).first(), Some(&owner(&place)));
}

#[test]
fn root_reads_nothing_and_gives_nothing_away_by_name() {
    if !can_be_tried() {
        return;
    }
    let place = Place::with_instance();
    let data = place.path("data");
    let calls = place.path("calls");
    let new = place.path("other");
    let strongroom = place.product().join("strongroom");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-o"])
        .arg(&calls)
        .args(["-e", "trace=?open,openat,?openat2,?chown,?lchown,?fchownat,?rename,?renameat,?renameat2,?unlink,?unlinkat,execve"])
        .arg(strongroom)
        .args(["pg", "rotate", "--slots-only", "-D"])
        .arg(&data)
        .arg("--new-key-file")
        .arg(&new)
        .env("STRONGROOM_SHIELD_LIB", library(&place))
        .current_dir("/");
    run(&mut traced).succeeded();
    let calls = fs::read_to_string(&calls).unwrap();
    assert!(
        !calls.contains("chown"),
        "something is given away by its name:\n{calls}"
    );
    let within = place.path("");
    let within = within.to_str().unwrap().to_owned();
    // All that root does: up to the second execve, by which it has become another user.
    let starts: Vec<usize> = calls.match_indices("execve(").map(|(at, _)| at).collect();
    assert!(starts.len() >= 2, "{calls}");
    let by_root = &calls[..starts[1]];
    for line in by_root.lines().filter(|line| line.contains("open")) {
        let reads_nothing = line.contains("O_PATH") && line.contains("O_NOFOLLOW");
        // Libraries, and who the users are.
        let elsewhere = line.contains("(AT_FDCWD, \"/") && !line.contains(&within);
        assert!(reads_nothing || elsewhere, "{line}");
    }
    // It has looked, of course.
    let looked = |line: &str| line.contains("\"data\", ") && line.contains("O_PATH");
    assert!(by_root.lines().any(looked), "{by_root}");
}

#[test]
fn keyrings_and_databases_are_changed_as_their_owner() {
    if !can_be_tried() {
        return;
    }
    let place = Place::new();
    let at = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let ring = at("ring");
    let provider = format!("command:{}", planted(&place));
    let commands: &[&[&str]] = &[
        &[
            "--keyring",
            &ring,
            "keyring",
            "init",
            "--provider",
            &provider,
        ],
        &["--keyring", &ring, "key", "create", "app"],
        &["--keyring", &ring, "key", "list"],
        &["--keyring", &ring, "cert", "list"],
        &["verify", &ring],
    ];
    for command in commands {
        as_root(&place, command).succeeded();
        let users = ran_as(&place);
        assert!(
            users.iter().all(|user| *user == owner(&place)),
            "{command:?}: {users:?}"
        );
    }
    let sealed = at("sealed.db");
    let shell = [
        "sqlite",
        "shell",
        &sealed,
        "--key-file",
        &at("key"),
        "-c",
        "create table t(a)",
    ];
    as_root(&place, &shell).succeeded();
    for name in ["ring", "ring.lock", "sealed.db"] {
        let user = fs::metadata(place.path(name)).unwrap().uid().to_string();
        assert_eq!(user, owner(&place), "{name}");
    }
    // The lock of a keyring, where somebody has put a link.
    let victim = root_place();
    fs::remove_file(place.path("ring.lock")).unwrap();
    symlink(victim.path().join("made"), place.path("ring.lock")).unwrap();
    assert_ne!(
        as_root(&place, &["--keyring", &ring, "key", "create", "two"]).code,
        0
    );
    assert!(!victim.path().join("made").exists());
}

#[test]
fn what_cannot_be_done_as_the_owner_is_refused() {
    if !can_be_tried() {
        return;
    }
    let place = Place::new();
    let at = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let chown = |name: &str, user: u32| {
        std::os::unix::fs::chown(place.path(name), Some(user), Some(user)).unwrap();
    };
    place.write("file", "nothing");
    // In the hands of two users: either could lead root to the other's.
    chown("file", 1);
    as_root(&place, &["inspect", &at("file")]).ended_with(6, "SR-6020");
    // A directory in which everybody may exchange names.
    fs::create_dir(place.path("open")).unwrap();
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    as_root(&place, &["inspect", &at("open/file")]).ended_with(6, "SR-6020");
    // A user whom the system does not know.
    let unknown = root_place();
    let file = unknown.path().join("file");
    fs::File::create(&file).unwrap();
    std::os::unix::fs::chown(&file, Some(3_999_999), Some(3_999_999)).unwrap();
    let told = as_root(&place, &["inspect", file.to_str().unwrap()]).ended_with(6, "SR-6021");
    assert!(
        told.contains("3999999") && told.contains("runuser"),
        "{told}"
    );
}

#[test]
fn the_owners_programs_cannot_type_at_roots_terminal() {
    if !can_be_tried() {
        return;
    }
    let place = Place::with_instance();
    let (typed, key) = (place.path("typed"), place.path("key"));
    place.write(
        "type.py",
        "import fcntl, termios, sys\n\
         try:\n    fcntl.ioctl(open('/dev/tty'), termios.TIOCSTI, b'x'); said = 'typed'\n\
         except OSError as error:\n    said = str(error.errno)\n\
         open(sys.argv[1], 'w').write(said)\n",
    );
    let line = format!(
        "python3 {} {}; cat {}",
        place.path("type.py").display(),
        typed.display(),
        key.display()
    );
    place.write("data/strongroom.conf", &format!("key_command = {line}\n"));
    let strongroom = place.product().join("strongroom");
    let under = format!(
        "{} verify {}",
        strongroom.display(),
        place.path("data").display()
    );
    // It gives the command a terminal of its own, as a login does.
    let mut script = Command::new("script");
    script
        .args(["-qec", &under, "/dev/null"])
        .current_dir("/")
        .stdin(Stdio::null());
    run(&mut script).succeeded();
    // EPERM is the filter's answer; EIO that of a kernel that refuses it to everybody.
    assert_eq!(fs::read_to_string(&typed).unwrap(), "1");
}
