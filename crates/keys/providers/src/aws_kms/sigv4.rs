//! AWS's signature of a request, version 4, as far as KMS needs it: POST to `/`, no query.
//!
//! The tests are the examples that AWS publishes. Must not: touch the network or a clock; hold a
//! key beyond a call.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use strongroom_crypto::{MacKey, SecretBytes, SecretKey, sha256};
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use crate::network::http::concat_locked;

/// The region, service and time for which a signature is valid.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// `YYYYMMDDTHHMMSSZ`.
    pub(super) time: &'a str,
}

/// A request: headers by name in lower case, in order of name, every one of them signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a [(&'a str, &'a [u8])],
    pub(super) body: &'a [u8],
}

/// Computes the signature of a request, and returns the value of the header `Authorization`.
/// Errors: SR-5001 when there is no memory for keys.
pub(super) fn authorization(
    scope: &Scope<'_>,
    key_id: &str,
    secret: &SecretBytes,
    request: &Signed<'_>,
) -> Result<String, Error> {
    let date = scope.time.get(..8).unwrap_or_default();
    let credential = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let names: Vec<_> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let text = canonical(request, &names);
    let digest = hex(&sha256(&[&text]));
    let to_sign = format!("AWS4-HMAC-SHA256\n{}\n{credential}\n{digest}", scope.time);
    let first = concat_locked(&[b"AWS4", secret.as_slice()])?;
    let mut key = MacKey::of_password(&first)?;
    for part in [date, scope.region, scope.service, "aws4_request"] {
        let mut next = key.mac(&[part.as_bytes()]);
        key = MacKey::new(&SecretKey::take(&mut next)?)?;
    }
    let signature = hex(&key.mac(&[to_sign.as_bytes()]));
    Ok(format!(
        "AWS4-HMAC-SHA256 Credential={key_id}/{credential}, SignedHeaders={names}, Signature={signature}"
    ))
}

/// Returns the canonical form of a request. It contains the session's token, so callers keep only
/// its hash.
fn canonical(request: &Signed<'_>, names: &str) -> Vec<u8> {
    let begin = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    let mut text = begin.into_bytes();
    for (name, value) in request.headers {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        text.extend_from_slice(value.trim_ascii());
        text.push(b'\n');
    }
    let digest = hex(&sha256(&[request.body]));
    text.extend_from_slice(format!("\n{names}\n{digest}").as_bytes());
    text
}

/// Formats a time in seconds since the Unix epoch as `YYYYMMDDTHHMMSSZ`. A time after the year 9999
/// is given as the epoch.
pub(super) fn time_of(unix_s: u64) -> String {
    let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let since = SignedDuration::from_secs(i64::try_from(unix_s).unwrap_or(0));
    let time = epoch.checked_add(since).unwrap_or(epoch);
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of AWS's published examples: these keys are nobody's.
    const KEY_ID: &str = "AKIDEXAMPLE";
    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const TIME: &str = "20150830T123600Z";

    fn signature(service: &str, request: &Signed<'_>) -> String {
        let scope = Scope {
            region: "us-east-1",
            service,
            time: TIME,
        };
        let secret = SecretBytes::take(&mut SECRET.to_vec()).unwrap();
        authorization(&scope, KEY_ID, &secret, request).unwrap()
    }

    #[test]
    fn the_examples_of_aws() {
        let host: (&str, &[u8]) = ("host", b"example.amazonaws.com");
        let date: (&str, &[u8]) = ("x-amz-date", TIME.as_bytes());
        let plain = [host, date];
        let mut request = Signed {
            method: "GET",
            path: "/",
            query: "",
            headers: &plain,
            body: b"",
        };
        assert_eq!(
            signature("service", &request),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, \
             Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        request.method = "POST";
        let post = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        assert!(signature("service", &request).ends_with(post));
        let form = [
            (
                "content-type",
                b"application/x-www-form-urlencoded".as_slice(),
            ),
            host,
            date,
        ];
        request.headers = &form;
        request.body = b"Param1=value1";
        let form = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
        assert!(signature("service", &request).ends_with(form));
        // The example of the documentation's walk through the steps.
        let headers = [
            (
                "content-type",
                b"application/x-www-form-urlencoded; charset=utf-8".as_slice(),
            ),
            ("host", b"iam.amazonaws.com"),
            date,
        ];
        let request = Signed {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &headers,
            body: b"",
        };
        let list = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        assert!(signature("iam", &request).ends_with(list));
    }

    #[test]
    fn times_are_written() {
        for (unix_s, text) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (1_709_164_799, "20240228T235959Z"),
            (1_709_251_199, "20240229T235959Z"),
            (4_102_444_799, "20991231T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(time_of(unix_s), text);
        }
    }
}
