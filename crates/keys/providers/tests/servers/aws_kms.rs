//! The provider `aws-kms` against moto; what moto does not refuse, as AWS does, is answered in its
//! place.

use serde_json::{Value, json};

use crate::support::http::{answer, request};
use crate::support::relay::{Fault, Relay, Side, server_side};
use crate::support::{Authority, Home, Script, created, put};

/// What must be in no error.
const SECRET: &str = "CANARY/secret+access+key";

struct Room {
    home: Home,
    moto: Script,
    relay: Relay,
    arn: String,
}

impl Room {
    fn new() -> Self {
        let home = Home::new();
        let authority = Authority::new(&home.path("ca.pem"));
        authority.issue(&home.path(""), "server");
        let text = format!(
            "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n"
        );
        put(&home.path("credentials"), text.as_bytes());
        let moto = Script::started("kms_server.py", &[], "moto[server]");
        let relay = Relay::started(
            moto.port,
            server_side(&home.path(""), "server"),
            Side::Plain,
        );
        let mut room = Self {
            home,
            moto,
            relay,
            arn: String::new(),
        };
        let made = room.ask("CreateKey", &json!({}));
        room.arn = made["KeyMetadata"]["Arn"].as_str().unwrap().to_owned();
        room
    }

    /// The owner of the keys asks.
    fn ask(&self, operation: &str, body: &Value) -> Value {
        let target = format!("TrentService.{operation}");
        let headers = [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("X-Amz-Target", &target),
            (
                "Authorization",
                "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/kms/aws4_request, SignedHeaders=host, Signature=0",
            ),
        ];
        let (status, told) = request(self.moto.port, "/", &headers, &body.to_string());
        assert_eq!(status, 200, "{told}");
        serde_json::from_str(&told).unwrap_or_default()
    }

    fn provider(&self, key: &str, mark: char) -> String {
        format!(
            "aws-kms:{key}{mark}endpoint=https://127.0.0.1:{}&ca={}&credentials-file={}&timeout=60",
            self.relay.port,
            self.home.text("ca.pem"),
            self.home.text("credentials")
        )
    }

    fn told(&self) -> u16 {
        let (code, words) = self.home.refused();
        assert!(!words.contains("CANARY"), "{words}");
        code
    }
}

fn of_kind(status: u16, kind: &str) -> Fault {
    let body = json!({"__type": kind, "message": "CANARY"});
    Fault::Instead(answer(status, &body.to_string()))
}

#[test]
fn a_key_of_kms_seals_and_each_of_its_states_is_told() {
    let mut room = Room::new();
    let provider = room.provider(&room.arn, '?');
    room.home.init("keyring", &provider);
    room.home.rotate(None);
    // By alias; the key that sealed stays the one that opens when the alias points elsewhere.
    let alias = |id: &str| json!({"AliasName": "alias/root", "TargetKeyId": id});
    room.ask("CreateAlias", &alias(&room.arn));
    let by_alias = room.provider("alias/root?region=us-east-1", '&');
    room.home.init("alias", &by_alias);
    let other = room.ask("CreateKey", &json!({}));
    room.ask(
        "UpdateAlias",
        &alias(other["KeyMetadata"]["Arn"].as_str().unwrap()),
    );
    room.home.opens();
    room.ask("EnableKeyRotation", &json!({"KeyId": room.arn}));
    room.home.opens();
    let missing = room.arn.replace(":key/", ":key/00000000");
    assert_eq!(created(&room.provider(&missing, '?')).0, 2103);
    for (status, kind, code) in [
        (400, "DisabledException", 2104),
        (400, "KMSInvalidStateException", 2121),
        (400, "NotFoundException", 2103),
        (400, "AccessDeniedException", 2102),
        (403, "InvalidSignatureException", 2102),
        (400, "InvalidCiphertextException", 2105),
        (400, "IncorrectKeyException", 2105),
        (400, "ThrottlingException", 2122),
        (500, "KMSInternalException", 2122),
        (400, "CANARYException", 2105),
    ] {
        room.relay.set(of_kind(status, kind));
        assert_eq!(room.told(), code, "{kind}");
    }
    room.relay.set(Fault::None);
    // The blob of another keyring, or of another id, is bound to that one.
    assert_eq!(room.home.with_another_id().0, 2105);
}

#[test]
fn credentials_that_are_not_there_or_not_good_are_told() {
    let mut room = Room::new();
    let provider = room.provider(&room.arn, '?');
    room.home.init("keyring", &provider);
    for text in [
        "",
        "[default]\naws_access_key_id = AKIDEXAMPLE\n",
        "[other]\naws_access_key_id = A\naws_secret_access_key = CANARY\n",
        "[default]\naws_access_key_id = A B\naws_secret_access_key = CANARY\n",
    ] {
        put(&room.home.path("credentials"), text.as_bytes());
        assert_eq!(room.told(), 2123, "{text}");
    }
}

#[test]
fn whatever_a_server_does_ends_in_time_and_in_an_error() {
    let mut room = Room::new();
    let provider = room.provider(&room.arn, '?');
    room.home.init("keyring", &provider);
    for fault in [Fault::Hang, Fault::Slow] {
        room.relay.set(fault.clone());
        assert_eq!(
            room.home.with("timeout=60", "timeout=1").0,
            2101,
            "{fault:?}"
        );
    }
    for after in [0, 1, 20, 150, 300] {
        room.relay.set(Fault::Cut(after));
        let code = room.told();
        assert!([2101, 2105].contains(&code), "{after}: {code}");
    }
    for at in (0..450).step_by(7) {
        room.relay.set(Fault::Flip(at));
        // Not every byte of an answer matters.
        if let Err((code, words)) = room.home.tried() {
            assert!(
                [2101, 2102, 2103, 2105, 2122].contains(&code),
                "{at}: {words}"
            );
            assert!(!words.contains("CANARY"), "{words}");
        }
    }
    let arn = &room.arn;
    let other = json!({"KeyId": format!("{arn}0"), "Plaintext": "A".repeat(43) + "="});
    let forged = json!({"KeyId": arn, "Plaintext": "A".repeat(43) + "="});
    for fault in [
        Fault::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        Fault::Instead(answer(200, "CANARY")),
        Fault::Instead(answer(200, &other.to_string())),
        Fault::Instead(answer(200, &forged.to_string())),
    ] {
        room.relay.set(fault.clone());
        assert_eq!(room.told(), 2105, "{fault:?}");
    }
    room.relay.set(Fault::None);
    room.home.opens();
    drop(Authority::new(&room.home.path("other.pem")));
    assert_eq!(room.home.with("ca.pem", "other.pem").0, 2120);
    drop(room.moto);
    let here = format!("127.0.0.1:{}", room.relay.port);
    assert_eq!(room.home.with(&here, "127.0.0.1:1").0, 2101);
}
