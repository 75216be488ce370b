//! Verifies the certificate of a server.
//!
//! Invariants:
//! - Q3: the strength is the one that `sslmode` names; nothing falls back to a weaker one.
//! - Q4: a server's own certificate that is in the file of trusted certificates is trusted as
//!   such, also where it is a self-signed one that calls itself an authority; its dates and, for
//!   verify-full, its names are still checked.
//!
//! In all modes the handshake's signature is verified: the peer holds the key of the certificate
//! that it shows.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::der;

/// How strictly a certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Any certificate is accepted; the server has to have its key.
    Nothing,
    /// The certificate is from a trusted authority, or is trusted itself.
    Chain,
    /// As [`Check::Chain`], and it names the host.
    ChainAndName,
}

/// The rules for one connection.
#[derive(Debug)]
pub struct Verifier {
    /// How strictly.
    pub check: Check,
    /// Trusted authorities.
    pub roots: RootCertStore,
    /// Certificates of servers that are trusted whoever has signed them.
    pub pinned: Vec<CertificateDer<'static>>,
    /// The primitives.
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    /// Checks the server's certificate as strictly as [`Verifier::check`] says: a pinned one for
    /// its dates, every other one for its chain to a trusted authority and its dates; and its names
    /// where that is required. With [`Check::Nothing`] every certificate is accepted.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.check == Check::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let pinned = self
            .pinned
            .iter()
            .any(|pin| pin.as_ref() == end_entity.as_ref());
        if pinned {
            is_valid_at(end_entity, now)?;
        } else {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                &self.roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        if self.check == Check::ChainAndName {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    /// Checks the handshake's signature by the certificate's key, in every mode.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    /// Checks the handshake's signature by the certificate's key, in every mode.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    /// Returns the signature schemes that the supplier of the primitives can verify.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Checks that `now` lies within the dates of a certificate for which no chain is built. Fails with
/// `NotValidYet`, `Expired`, or `BadEncoding` if the dates cannot be parsed.
fn is_valid_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let Some((from, until)) = der::validity(certificate) else {
        return Err(CertificateError::BadEncoding.into());
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < from {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > until {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
