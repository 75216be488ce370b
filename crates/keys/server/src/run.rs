//! The server process: it reads its configuration, listens, unseals itself with a provider, runs
//! the periodic tasks and handles signals.
//!
//! Must not: exit while it could serve requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strongroom_keyring::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::certificate_keeper::CertificateKeeper;
use crate::config::Config;
use crate::http::Interface;
use crate::log::{Level, log, log_failures_left_out};
use crate::notify::notify;
use crate::serve::serve;
use crate::server::Server;
use crate::tls;

/// The first and the longest pause between two requests to the root key's provider.
const PROVIDER_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How often the server's certificate is checked.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);
/// How often the store's space is measured and rows of the audit log are archived.
const SPACE_INTERVAL: Duration = Duration::from_secs(30);
/// The same while the server is sealed.
const SEALED_INTERVAL: Duration = Duration::from_secs(1);
/// How often keys are erased whose time of destruction has passed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the server until SIGTERM or SIGINT stops it, and then lets running requests end. Calls
/// `listening` with the address on which the API listens. SIGHUP has it read the configuration
/// again. It begins sealed, and requests its root key from the provider if it has one.
///
/// # Errors
/// When it could not start: SR-1006 without the configuration; SR-8434 when that is not valid;
/// SR-8440 for a file of TLS; SR-5001 for an address or threads.
pub fn run(path: &Path, listening: impl FnOnce(std::net::SocketAddr)) -> Result<(), Error> {
    let config = Config::read(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", error))?;
    runtime.block_on(run_until_stopped(path.to_path_buf(), config, listening))
}

/// Does the work of [`run`]: starts the listeners and the periodic tasks, waits for a signal, and
/// ends them. When it could not start: SR-8434 for the configuration, SR-8440 for a file of TLS,
/// SR-5001 for an address or a signal.
async fn run_until_stopped(
    path: PathBuf,
    config: Config,
    listening: impl FnOnce(std::net::SocketAddr),
) -> Result<(), Error> {
    let (tls, tls_receiver) = watch::channel(tls::server_config(&config)?);
    let tls = Arc::new(tls);
    let address = config.address;
    let server = Arc::new(Server::sealed(config)?);
    let failed = |error| Error::io(format!("listening on {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let page = page_listener(&server).await?;
    let (stop, stopped) = watch::channel(false);
    let on = |kind| signal(kind).map_err(|error| Error::io("signals", error));
    let stop_signals = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let reload_signal = on(SignalKind::hangup())?;
    let page_task = page.map(|listener| {
        let (tls, stopped) = (tls_receiver.clone(), stopped.clone());
        tokio::spawn(serve(
            Arc::clone(&server),
            Interface::Page,
            listener,
            tls,
            stopped,
        ))
    });
    let api_task = tokio::spawn(serve(
        Arc::clone(&server),
        Interface::Api,
        listener,
        tls_receiver,
        stopped.clone(),
    ));
    log(Level::Info, "listening", &[("address", &bound.to_string())]);
    listening(bound);
    notify("READY=1");
    let unseal_task = tokio::spawn(unseal_by_provider(Arc::clone(&server), stopped.clone()));
    let sweep_task = tokio::spawn(sweep(Arc::clone(&server), stopped.clone()));
    let space_task = tokio::spawn(watch_space(Arc::clone(&server), stopped.clone()));
    let certificate_task = tokio::spawn(keep_certificate(
        Arc::clone(&server),
        Arc::clone(&tls),
        stopped.clone(),
    ));
    let reload_task = tokio::spawn(reload(path, Arc::clone(&server), tls, reload_signal));
    stop_signal(stop_signals).await;
    notify("STOPPING=1");
    log(Level::Info, "stopping", &[]);
    // There are receivers as long as the tasks run.
    let _sent = stop.send(true);
    reload_task.abort();
    drop(api_task.await);
    if let Some(page_task) = page_task {
        drop(page_task.await);
    }
    sweep_task.abort();
    space_task.abort();
    certificate_task.abort();
    unseal_task.abort();
    if let Ok(service) = server.service() {
        drop(tokio::task::spawn_blocking(move || service.flush_syslog()).await);
    }
    log(Level::Info, "stopped", &[]);
    Ok(())
}

/// Binds and logs the listener of the fleet page; `None` when none is configured. It is never the
/// one of the API, where requests change something. SR-5001 when the address cannot be bound.
async fn page_listener(server: &Server) -> Result<Option<TcpListener>, Error> {
    let Some(address) = server.config().page else {
        return Ok(None);
    };
    let failed = |error| Error::io(format!("listening on {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    log(Level::Info, "page", &[("address", &bound.to_string())]);
    Ok(Some(listener))
}

/// Waits for SIGTERM or SIGINT.
async fn stop_signal((mut terminate, mut interrupt): (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Requests the root key from its provider, with growing pauses of up to a minute, until the server
/// is open, an administrator has sealed it, or `stop` changes. Each failure is logged.
async fn unseal_by_provider(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let (first, last) = PROVIDER_PAUSES;
    let mut pause = first;
    while server.wants_provider() {
        let shared = Arc::clone(&server);
        let unsealed = tokio::task::spawn_blocking(move || shared.unseal_by_provider()).await;
        let error = match unsealed {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the provider's call ended in a defect".to_owned(),
        };
        log(Level::Error, "sealed", &[("error", &error)]);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => return,
        }
        pause = last.min(pause * 2);
    }
}

/// Every minute, unless the server is sealed: erases keys whose time of destruction has passed, and
/// removes expired tokens and pieces of headers that no record names
/// ([`Service::sweep`](crate::service::Service::sweep)). A failure is logged. Ends when `stop`
/// changes.
async fn sweep(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        if let Ok(service) = server.service() {
            let swept = tokio::task::spawn_blocking(move || service.sweep()).await;
            if let Ok(Err(error)) = swept {
                log(Level::Error, "sweep", &[("error", &error.to_string())]);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Every 30 seconds, unless the server is sealed: archives rows of the audit log that are due, and
/// checks the store's space, whose alarms are logged. Also logs the failures that were counted.
/// Ends when `stop` changes.
async fn watch_space(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        let mut pause = SEALED_INTERVAL;
        log_failures_left_out();
        if let Ok(service) = server.service() {
            pause = SPACE_INTERVAL;
            let config = server.config();
            let watched = tokio::task::spawn_blocking(move || {
                for one in service.archive_when_due(&config).iter().flatten() {
                    let (file, head) = (&*one.file, &*one.head);
                    log(Level::Info, "archived", &[("file", file), ("head", head)]);
                }
                service.watch_space(&config)
            });
            if let Ok(Err(error)) = watched.await {
                log(Level::Error, "room", &[("error", &error.to_string())]);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Every 5 seconds, has [`CertificateKeeper`] check the server's certificate, and gives new
/// connections the TLS configuration that it returns. Ends when `stop` changes.
async fn keep_certificate(
    server: Arc<Server>,
    tls: Arc<watch::Sender<Arc<rustls::ServerConfig>>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut keeper = CertificateKeeper::new(&server);
    loop {
        let shared = Arc::clone(&server);
        let checked = tokio::task::spawn_blocking(move || {
            let fresh = keeper.check(&shared);
            (keeper, fresh)
        });
        let Ok((after, fresh)) = checked.await else {
            return log(Level::Error, "certificate", &[("error", "a defect")]);
        };
        keeper = after;
        if let Some(fresh) = fresh {
            // New connections use it.
            drop(tls.send(fresh));
        }
        tokio::select! {
            () = tokio::time::sleep(CERTIFICATE_INTERVAL) => {}
            _ = stop.changed() => return,
        }
    }
}

/// At each SIGHUP, reads the configuration and the TLS files again, and puts them in force. If they
/// are not valid, they have no effect, and that is logged. Tells the service manager. Never ends by
/// itself.
async fn reload(
    path: PathBuf,
    server: Arc<Server>,
    tls: Arc<watch::Sender<Arc<rustls::ServerConfig>>>,
    mut signals: Signal,
) {
    while signals.recv().await.is_some() {
        notify("RELOADING=1");
        match Config::read(&path).and_then(|config| Ok((tls::server_config(&config)?, config))) {
            Ok((fresh, config)) => {
                // New connections use it.
                drop(tls.send(fresh));
                server.reconfigure(config);
                log(Level::Info, "reloaded", &[]);
            }
            Err(error) => log(
                Level::Error,
                "not reloaded",
                &[("error", &error.to_string())],
            ),
        }
        notify("READY=1");
    }
}
