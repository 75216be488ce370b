//! Goal: what a child does with descriptors before it becomes another program is nothing to its
//! parent.
//!
//! Method: Python starts a program, as PL/Python in a backend does: by vfork where it can, and its
//! child closes every descriptor. The parent then goes on with the sealed file that it had open.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use strongroom_format::header::Cipher;
use support::{Place, check, holding, library, program};

const SCRIPT: &str = "
import os, subprocess, sys
os.mkdir(sys.argv[1] + '/base')
os.mkdir(sys.argv[1] + '/base/5')
fd = os.open(sys.argv[1] + '/base/5/16384', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'canary before the child ' * 512, 0)
assert subprocess._USE_VFORK
subprocess.run(['/bin/true'], close_fds=True, check=True)
assert os.pread(fd, 24, 0) == b'canary before the child ', 'read after the child'
os.pwrite(fd, b'canary after the child  ' * 512, 12288)
assert os.pread(fd, 24, 12288) == b'canary after the child  '
";

#[test]
fn a_child_closes_its_own_descriptors_only() {
    let place = Place::new();
    let sealed = place.sealed("data", Cipher::Aes128Xts);
    let mut command = program("env");
    command
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg("STRONGROOM_SHIELD_ALL=1")
        .arg(format!("STRONGROOM_PG_ROOTS={}", sealed.display()))
        .args(["/usr/bin/python3", "-c", SCRIPT])
        .arg(&sealed);
    let _nothing = check(command.current_dir(place.path()).output().unwrap());
    assert!(holding(&sealed, "canary").is_empty());
}
