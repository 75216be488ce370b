//! Files of `SQLCipher` and `SQLite3` Multiple Ciphers, made by those products.

use std::process::Command;

use crate::common::Place;
use crate::sqlite_run::{APP, NEEDLE, is_sealed, place, tool};

/// Runs Python with the other products' modules, in the place.
#[track_caller]
fn python(place: &Place, code: &str) {
    let output = Command::new(tool("python"))
        .args(["-c", code])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A database of 500 rows, made by a module after `settings`.
fn rows(settings: &str) -> String {
    format!(
        "{settings}\n\
         c.execute('create table t(a, b)')\n\
         c.execute('begin')\n\
         for n in range(500): c.execute('insert into t values(?, ?)', (n, '{NEEDLE} %d' % n))\n\
         c.execute('commit')\n\
         c.close()\n"
    )
}

fn sqlcipher(name: &str, pragma: &str) -> String {
    rows(&format!(
        "from sqlcipher3 import dbapi2\n\
         c = dbapi2.connect('{name}', isolation_level=None)\n\
         c.execute(\"pragma key='secret'\")\n\
         c.execute(\"pragma {pragma}\")"
    ))
}

fn multiple_ciphers(name: &str, cipher: &str) -> String {
    rows(&format!(
        "import apsw\n\
         c = apsw.Connection('{name}')\n\
         c.execute(\"pragma cipher='{cipher}'\")\n\
         c.execute(\"pragma key='secret'\")"
    ))
}

fn inspected(place: &Place, name: &str) -> String {
    place.run(&["inspect", name]).succeeded()
}

#[track_caller]
fn is_refused(place: &Place, name: &str, word: &str) {
    let encrypt = ["sqlite", "encrypt", name, "out.db", "--key-id", "app"];
    let refused = place.run(&encrypt).failed(2, "SR-2288");
    assert!(refused.contains(word), "{name}: {refused}");
    assert!(!place.path("out.db").exists());
}

#[test]
fn files_of_sqlcipher_are_recognised() {
    let place = place();
    for (name, pragma, page_size) in [
        ("four.db", "cipher_page_size=4096", 4096),
        ("three.db", "cipher_compatibility=3", 1024),
    ] {
        python(&place, &sqlcipher(name, pragma));
        let text = inspected(&place, name);
        assert!(text.contains("may be a database of SQLCipher"), "{text}");
        assert!(text.contains("a guess"), "{text}");
        // A length can be a multiple of more than one page size.
        let fits = format!("pages of {page_size} bytes");
        assert!(text.contains(&fits) || page_size < 4096, "{text}");
        is_refused(&place, name, "SQLCipher");
    }
    // Its header looks like a plain database's for 32 bytes.
    python(
        &place,
        &sqlcipher("clear.db", "cipher_plaintext_header_size=32"),
    );
    let text = inspected(&place, "clear.db");
    assert!(text.contains("another product has encrypted"), "{text}");
    assert!(text.contains("SQLCipher"), "{text}");
    is_refused(&place, "clear.db", "SQLCipher");
    let json = place.run(&["inspect", "clear.db", "--json"]).succeeded();
    assert!(json.contains("\"kind\": \"sqlite-other-cipher\""), "{json}");
    // A sealed database and a plain one are neither.
    place.plain_database("plain.db", 3000);
    let encrypt = [
        "sqlite",
        "encrypt",
        "plain.db",
        "sealed.db",
        "--key-id",
        "app",
    ];
    place.run(&encrypt).succeeded();
    for name in ["plain.db", "sealed.db"] {
        let text = inspected(&place, name);
        assert!(!text.contains("SQLCipher"), "{text}");
    }
}

/// Files of other formats, padded to whole pages.
#[test]
fn compressed_files_are_not_taken_for_databases() {
    let place = place();
    let code = "\
import bz2, gzip, io, lzma, random, struct, zipfile, zlib
def zipped(data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('data', data)
    return out.getvalue()
def png(data):
    def chunk(kind, body):
        check = struct.pack('>I', zlib.crc32(kind + body))
        return struct.pack('>I', len(body)) + kind + body + check
    width = len(data)
    header = struct.pack('>IIBBBBB', width, 1, 8, 0, 0, 0, 0)
    pixels = chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(b'\\0' + data)) + chunk(b'IEND', b'')
    return b'\\x89PNG\\r\\n\\x1a\\n' + pixels
noise = random.Random(1).randbytes(60000)
makers = {'gzip': lambda data: gzip.compress(data, mtime=0), 'zip': zipped, 'png': png,
          'xz': lzma.compress, 'bzip2': bz2.compress, 'noise': lambda data: data}
for name, make in makers.items():
    made = make(noise)
    open(name, 'wb').write(made + noise[:-len(made) % 4096])
";
    python(&place, code);
    for name in ["gzip", "zip", "png", "xz", "bzip2"] {
        let text = inspected(&place, name);
        assert!(!text.contains("SQLCipher"), "{name}: {text}");
        let encrypt = ["sqlite", "encrypt", name, "out.db", "--key-id", "app"];
        let refused = place.run(&encrypt);
        assert_ne!(refused.code, 0);
        assert!(!refused.err.contains("SR-2288"), "{name}: {}", refused.err);
        assert!(!place.path("out.db").exists());
    }
    // Random bytes of such a length cannot be told from one.
    let text = inspected(&place, "noise");
    assert!(text.contains("a guess"), "{text}");
}

#[test]
fn files_of_multiple_ciphers_are_recognised() {
    let place = place();
    for cipher in [
        "chacha20",
        "aes256cbc",
        "sqlcipher",
        "ascon128",
        "aes128cbc",
    ] {
        let name = format!("{cipher}.db");
        python(&place, &multiple_ciphers(&name, cipher));
        let text = inspected(&place, &name);
        assert!(text.contains("Multiple Ciphers"), "{cipher}: {text}");
        is_refused(&place, &name, "Multiple Ciphers");
    }
}

/// The way that the error and the guide describe.
#[test]
fn a_database_of_sqlcipher_is_brought_over() {
    let place = place();
    python(&place, &sqlcipher("old.db", "cipher_page_size=4096"));
    python(
        &place,
        "from sqlcipher3 import dbapi2\n\
         c = dbapi2.connect('old.db', isolation_level=None)\n\
         c.execute(\"pragma key='secret'\")\n\
         c.execute(\"attach 'plain.db' as plain key ''\")\n\
         c.execute(\"select sqlcipher_export('plain')\")\n",
    );
    let encrypt = [
        "sqlite",
        "encrypt",
        "plain.db",
        "sealed.db",
        "--key-id",
        "app",
    ];
    place.run(&encrypt).succeeded();
    is_sealed(&place, "sealed.db");
    let count = ["-c", "SELECT count(*) AS n FROM t"];
    let count = [&["sqlite", "shell", "sealed.db"], &APP[..], &count[..]].concat();
    assert!(place.run(&count).succeeded().contains("500"));
}
