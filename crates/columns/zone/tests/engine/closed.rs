//! The sandbox: what is named stays possible, the rest is not. It closes over a thread, so the test
//! goes on.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;

use strongroom_columns_zone::sandbox::{Sandbox, close};

#[test]
fn other_files_programs_and_sockets_are_out_of_reach() {
    let dir = std::env::temp_dir().join(format!("sr-sandbox-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let outside = std::env::temp_dir().join(format!("sr-outside-{}", std::process::id()));
    std::fs::File::create(&outside).unwrap();
    let sandbox = Sandbox {
        directories: vec![dir.clone()],
        insist_on_locks: false,
        all_threads: false,
    };
    let inner = std::thread::spawn({
        let (dir, outside) = (dir.clone(), outside.clone());
        move || {
            let closed = close(&sandbox).unwrap();
            assert!(closed.files, "this kernel has no Landlock");
            let denied =
                |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            denied(std::fs::File::open(&outside).unwrap_err());
            denied(std::fs::File::open("/etc/passwd").unwrap_err());
            denied(std::fs::remove_file(&outside).unwrap_err());
            denied(TcpListener::bind("127.0.0.1:0").unwrap_err());
            denied(Command::new("/bin/true").spawn().unwrap_err());
            let within = dir.join("within");
            std::io::Write::write_all(&mut std::fs::File::create(&within).unwrap(), b"x").unwrap();
            assert_eq!(std::fs::read(&within).unwrap(), b"x");
            std::thread::spawn(|| assert!(std::fs::File::open("/etc/passwd").is_err()))
                .join()
                .unwrap();
        }
    });
    inner.join().unwrap();
    std::fs::File::open(&outside).unwrap();
    std::fs::remove_file(&outside).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}
