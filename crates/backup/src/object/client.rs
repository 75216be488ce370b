//! The client of one object store: makes it from a URL and settings, and waits for its requests.
//!
//! Must not: repeat a URL that may contain a password.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectMeta, ObjectStore, RetryConfig};
use strongroom_format::code;
use strongroom_keyring::Fault;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use url::Url;

use super::fault::{is_lost, timeout_error, to_io_error};
use super::upload::IN_FLIGHT_MIB;
use crate::{Error, Result};

/// Time limit of the first request, so that a wrong endpoint is reported soon.
const FIRST: Duration = Duration::from_secs(15);
/// Time limit of each request after the store was lost: only clearing up is left then.
const AFTER_LOSS: Duration = Duration::from_secs(5);
/// Time limit of one request with its response: 2 GiB at 7 MB/s.
const REQUEST: Duration = Duration::from_secs(300);
const RETRIES: usize = 30;
/// The most objects of one list. An archive of 16 MiB segments has so many after 64 TiB of log.
const NAMES_MAX: usize = 4 << 20;

const UNKNOWN: u8 = 0;
const REACHED: u8 = 1;
const LOST: u8 = 2;

/// One store and the prefix, with what all requests share.
pub(super) struct Client {
    pub(super) runtime: Runtime,
    pub(super) store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The URL, for messages.
    pub(super) shown: String,
    /// Whether the store has answered: one of the three constants above.
    reach: AtomicU8,
    /// Permits, in MiB, for parts that are being uploaded.
    pub(super) in_flight: Arc<Semaphore>,
    /// Cloned by each family that is being read, which counts the readers.
    pub(super) readers: Arc<()>,
}

impl Client {
    /// Makes the client of the store that `url` names, with threads of its own; nothing is sent.
    /// SR-7140 when the URL or the settings cannot be used.
    pub(super) fn new(
        url: &str,
        settings: impl Iterator<Item = (String, String)>,
        patience: Duration,
    ) -> Result<Self> {
        let place = parse_url(url)?;
        let prefix = prefix(&place)?;
        // The product's provider of TLS primitives. It fails when an application has chosen one
        // already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let built = build(&place, settings, patience);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object-store")
            .enable_all()
            .build();
        Ok(Self {
            runtime: runtime.map_err(|error| Error::io("threads", error))?,
            // The crate's message is not shown: it may repeat a setting.
            store: built
                .map_err(|_| unusable("its settings in the environment are not complete"))?,
            prefix,
            shown: place.as_str().trim_end_matches('/').to_owned(),
            reach: AtomicU8::new(UNKNOWN),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MIB as usize)),
            readers: Arc::new(()),
        })
    }

    /// The path of an object below the prefix, by its name on the medium. Never an error.
    pub(super) fn path(&self, name: &str) -> io::Result<Path> {
        let mut path = self.prefix.clone();
        for part in name.split('/') {
            path = path.join(part);
        }
        Ok(path)
    }

    /// Runs a request, waits for its end, and notes whether the store answered. The first one, and
    /// those after one without an answer until one is answered again, have a short time limit here,
    /// after which the error is a timeout; the store may carry out such a request all the same.
    pub(super) fn send<T>(
        &self,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let limit = match self.reach.load(Ordering::Relaxed) {
            UNKNOWN => Some(FIRST),
            LOST => Some(AFTER_LOSS),
            _ => None,
        };
        let done = self.runtime.block_on(async {
            match limit {
                Some(limit) => tokio::time::timeout(limit, work)
                    .await
                    .unwrap_or_else(|_| Err(timeout_error())),
                None => work.await,
            }
        });
        self.note_outcome(&done);
        done
    }

    /// Notes whether the store answers, for the time limits of later requests.
    pub(super) fn note_outcome<T>(&self, done: &object_store::Result<T>) {
        let reach = match done {
            Err(error) if is_lost(error) => LOST,
            _ => REACHED,
        };
        self.reach.store(reach, Ordering::Relaxed);
    }

    /// Lists all objects below `below`, at any depth. SR-7143 when there are more than
    /// [`NAMES_MAX`]; SR-7141 to SR-7143 when the store fails.
    pub(super) fn all_below(&self, below: &Path) -> io::Result<Vec<ObjectMeta>> {
        let found = self.store.list(Some(below)).take(NAMES_MAX + 1);
        let found: object_store::Result<Vec<ObjectMeta>> = self.send(found.try_collect());
        let found = found.map_err(|error| to_io_error(&error))?;
        if found.len() > NAMES_MAX {
            let text = format!("it lists more than {NAMES_MAX} objects");
            return Err(Fault::io(io::ErrorKind::Other, &code::STORE_FAILED, text));
        }
        Ok(found)
    }

    /// How long clearing up may take: `usually`, or 5 seconds when the store does not answer.
    pub(super) fn clearing_limit(&self, usually: Duration) -> Duration {
        match self.reach.load(Ordering::Relaxed) {
            LOST => AFTER_LOSS,
            _ => usually,
        }
    }

    /// Asks the store whether there is no object below the prefix. SR-7141 to SR-7143 when it does
    /// not answer or fails.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        let mut found = self.store.list(Some(&self.prefix));
        let first = self.send(found.try_next());
        Ok(first.map_err(|error| to_io_error(&error))?.is_none())
    }
}

/// Makes SR-7140 with the reason.
fn unusable(why: &str) -> Error {
    Error::new(&code::STORE_URL, why)
}

/// Parses the URL of a medium. SR-7140 when its scheme is not `s3`, `gs` or `az`, it names no
/// bucket, or has a user, a port, a query or a fragment.
fn parse_url(text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|_| unusable("it is not a URL"))?;
    if !["s3", "gs", "az"].contains(&url.scheme()) {
        return Err(unusable("it begins with neither s3:, gs: nor az:"));
    }
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return Err(unusable("a user or a password has no place in it"));
    }
    let port = url.port().is_some();
    if url.host_str().is_none_or(str::is_empty) || port {
        return Err(unusable("it names no bucket"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(unusable("something follows the path"));
    }
    Ok(url)
}

/// The path in the URL, below which all objects are. SR-7140 when it has empty or dotted names, or
/// characters that no name may have.
fn prefix(url: &Url) -> Result<Path> {
    let path = Path::from_url_path(url.path());
    path.map_err(|_| {
        unusable("its path has empty or dotted names, or characters that no name may have")
    })
}

/// Makes the client of the URL's scheme, with those of the settings that it knows; others are
/// ignored. Sends nothing. An error when a needed setting is missing.
fn build(
    url: &Url,
    settings: impl Iterator<Item = (String, String)>,
    patience: Duration,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.,
        },
        max_retries: RETRIES,
        retry_timeout: patience,
    };
    let options = ClientOptions::new().with_timeout(REQUEST);
    // The crate's builders read these settings from the environment; here they come from
    // `settings`.
    macro_rules! configured {
        ($builder:ty, $prefix:literal, $($name:literal => $key:literal),*) => {{
            let builder = <$builder>::new().with_client_options(options).with_retry(retry);
            let mut builder = builder.with_url(url.as_str());
            for (name, value) in settings {
                let key = match name.as_str() {
                    $($name => Some(String::from($key)),)*
                    name if name.starts_with($prefix) => Some(name.to_ascii_lowercase()),
                    _ => None,
                };
                if let Some(Ok(key)) = key.map(|key| key.parse()) {
                    builder = builder.with_config(key, value);
                }
            }
            builder
        }};
    }
    Ok(match url.scheme() {
        // Objects are removed one at a time, which every store supports.
        "s3" => Arc::new(
            configured!(AmazonS3Builder, "AWS_",)
                .with_disable_bulk_delete(true)
                .build()?,
        ),
        "gs" => Arc::new(
            configured!(GoogleCloudStorageBuilder, "GOOGLE_", "SERVICE_ACCOUNT" => "google_service_account")
                .build()?,
        ),
        _ => Arc::new(
            configured!(MicrosoftAzureBuilder, "AZURE_", "IDENTITY_ENDPOINT" => "azure_msi_endpoint")
                .build()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(url: &str) -> Result<Client> {
        let settings = [
            ("AWS_ACCESS_KEY_ID", "CANARY-id"),
            ("AWS_SECRET_ACCESS_KEY", "CANARY-secret"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "Q0FOQVJZ"),
            ("GOOGLE_SKIP_SIGNATURE", "true"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Client::new(url, settings.into_iter(), Duration::from_secs(1))
    }

    #[test]
    fn urls_name_a_bucket_and_nothing_secret() {
        for (url, path) in [
            ("s3://bucket", "sets/00000001"),
            ("s3://bucket/", "sets/00000001"),
            ("s3://bucket/a/b", "a/b/sets/00000001"),
            ("gs://bucket/a/", "a/sets/00000001"),
            ("az://container/a%20b", "a b/sets/00000001"),
        ] {
            let client = opened(url).unwrap();
            assert_eq!(
                client.path("sets/00000001").unwrap().as_ref(),
                path,
                "{url}"
            );
        }
        for url in [
            "s3://key:CANARY@bucket/a",
            "s3://CANARY@bucket/a",
            "s3://bucket/a?CANARY=1",
            "s3://bucket/a#CANARY",
            "s3:///CANARY",
            "s3://",
            "s3://bucket:80/CANARY",
            "s3://bucket/a//CANARY",
            "http://bucket/CANARY",
            "file:///CANARY",
            "memory:///CANARY",
        ] {
            let refused = opened(url).err().unwrap();
            assert_eq!(refused.code(), &code::STORE_URL, "{url}");
            assert!(!refused.to_string().contains("CANARY"), "{refused}");
        }
    }

    #[test]
    fn settings_that_make_no_client_are_not_repeated() {
        let settings = [("AZURE_STORAGE_ACCOUNT_KEY", "CANARY not base64")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let refused = Client::new("az://c/p", settings.into_iter(), FIRST)
            .err()
            .unwrap();
        assert_eq!(refused.code(), &code::STORE_URL);
        assert!(!refused.to_string().contains("CANARY"), "{refused}");
    }
}
