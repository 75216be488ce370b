//! The process: reads its configuration, listens, unseals itself where a provider delivers the root key, heeds signals.
//!
//! Must not: exit while it could serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use strongroom_keyring::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::Config;
use crate::http::Face;
use crate::keeper::Keeper;
use crate::log::{Level, log, log_failures_left_out};
use crate::notify::notify;
use crate::serve::serve;
use crate::server::Server;
use crate::tls;

/// First and last pause between two questions to the root key's provider.
const PROVIDER_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How often the server's certificate is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How often the store's room is looked at, and whether rows of the audit log are due.
const ROOM: Duration = Duration::from_secs(30);
/// How often a sealed server is looked at for being open.
const WHILE_SEALED: Duration = Duration::from_secs(1);
/// How often keys are looked for whose time has come.
const SWEEP: Duration = Duration::from_secs(60);

/// Runs the server until it is told to stop. `listening` is told where it listens.
///
/// # Errors
/// SR-8434, SR-8440, SR-5001: it never began.
pub fn run(path: &Path, listening: impl FnOnce(std::net::SocketAddr)) -> Result<(), Error> {
    let config = Config::read(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", error))?;
    runtime.block_on(running(path.to_path_buf(), config, listening))
}

async fn running(
    path: PathBuf,
    config: Config,
    listening: impl FnOnce(std::net::SocketAddr),
) -> Result<(), Error> {
    let (tls, tls_of) = watch::channel(tls::server_config(&config)?);
    let tls = Arc::new(tls);
    let address = config.address;
    let server = Arc::new(Server::sealed(config)?);
    let failed = |error| Error::io(format!("listening on {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let page = page_listener(&server).await?;
    let (stop, stopped) = watch::channel(false);
    let on = |kind| signal(kind).map_err(|error| Error::io("signals", error));
    let ends = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let reloads = on(SignalKind::hangup())?;
    let shown = page.map(|listener| {
        let (tls, stopped) = (tls_of.clone(), stopped.clone());
        tokio::spawn(serve(
            Arc::clone(&server),
            Face::Page,
            listener,
            tls,
            stopped,
        ))
    });
    let served = tokio::spawn(serve(
        Arc::clone(&server),
        Face::Programs,
        listener,
        tls_of,
        stopped.clone(),
    ));
    log(Level::Info, "listening", &[("address", &bound.to_string())]);
    listening(bound);
    notify("READY=1");
    let provided = tokio::spawn(provide(Arc::clone(&server), stopped.clone()));
    let swept = tokio::spawn(sweep(Arc::clone(&server), stopped.clone()));
    let watched = tokio::spawn(watch_room(Arc::clone(&server), stopped.clone()));
    let kept = tokio::spawn(keep(Arc::clone(&server), Arc::clone(&tls), stopped.clone()));
    let reloaded = tokio::spawn(reload(path, Arc::clone(&server), tls, reloads));
    ended(ends).await;
    notify("STOPPING=1");
    log(Level::Info, "stopping", &[]);
    // Receivers are there as long as the tasks are.
    let _told = stop.send(true);
    reloaded.abort();
    drop(served.await);
    if let Some(shown) = shown {
        drop(shown.await);
    }
    swept.abort();
    watched.abort();
    kept.abort();
    provided.abort();
    if let Ok(service) = server.service() {
        drop(tokio::task::spawn_blocking(move || service.settle_syslog()).await);
    }
    log(Level::Info, "stopped", &[]);
    Ok(())
}

/// Where the fleet page is shown: never where something can be changed.
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

async fn ended((mut terminate, mut interrupt): (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Asks the provider of the root key until it has answered; again whenever the server is sealed for another reason than an order.
async fn provide(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let (first, last) = PROVIDER_PAUSES;
    let mut pause = first;
    while server.wants_provider() {
        let asked = Arc::clone(&server);
        let answer = tokio::task::spawn_blocking(move || asked.unseal_by_provider()).await;
        let error = match answer {
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

async fn sweep(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        if let Ok(service) = server.service() {
            let swept = tokio::task::spawn_blocking(move || service.sweep()).await;
            if let Ok(Err(error)) = swept {
                log(Level::Error, "sweep", &[("error", &error.to_string())]);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Archives rows of the audit log that are due, and looks after the store's room.
async fn watch_room(server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    loop {
        let mut pause = WHILE_SEALED;
        log_failures_left_out();
        if let Ok(service) = server.service() {
            pause = ROOM;
            let config = server.config();
            let looked = tokio::task::spawn_blocking(move || {
                for one in service.archive_when_due(&config).iter().flatten() {
                    let (file, head) = (&*one.file, &*one.head);
                    log(Level::Info, "archived", &[("file", file), ("head", head)]);
                }
                service.watch_room(&config)
            });
            if let Ok(Err(error)) = looked.await {
                log(Level::Error, "room", &[("error", &error.to_string())]);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Sees to the server's certificate: [`Keeper`].
async fn keep(
    server: Arc<Server>,
    tls: Arc<watch::Sender<Arc<rustls::ServerConfig>>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut keeper = Keeper::new(&server);
    loop {
        let shared = Arc::clone(&server);
        let looked = tokio::task::spawn_blocking(move || {
            let fresh = keeper.look(&shared);
            (keeper, fresh)
        });
        let Ok((after, fresh)) = looked.await else {
            return log(Level::Error, "certificate", &[("error", "a defect")]);
        };
        keeper = after;
        if let Some(fresh) = fresh {
            // Received by the connections to come.
            drop(tls.send(fresh));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.changed() => return,
        }
    }
}

/// Takes new certificates, limits and policy at each SIGHUP. What cannot be used changes nothing.
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
                // Received by the connections to come.
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
