//! Goal: what a session's client takes for an answer was sealed for it, and in the order in which
//! it comes.
//! Method: the owner's opening of envelopes that backends ask for, with and without the flag.

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Fault, Host};
use strongroom_format::columns::{EnvelopeHeader, Kind, Sealer};

use super::lineages::partition;
use super::{A, ORDINARY, Scene, fault, int8, intake, promote, sealed, ticket, with_zone};

fn header(envelope: &[u8]) -> EnvelopeHeader {
    EnvelopeHeader::parse(envelope).unwrap()
}

/// Serials of the results of these values.
fn serials(host: &mut Host, fids: &[u64]) -> Vec<u64> {
    let envelopes = sealed(host, flag::RESULT, fids).unwrap();
    envelopes.iter().map(|one| header(one).serial).collect()
}

fn client(scene: &Scene) -> (Host, [u8; 16]) {
    let mut host = scene.host();
    let session = scene
        .owner
        .open(&mut host, &ticket(ORDINARY, &[A]))
        .unwrap();
    (host, session)
}

#[test]
fn results_are_numbered_in_their_session() {
    with_zone("results", |scene| {
        let (mut host, session) = client(scene);
        let table = partition(&mut host, 16_384);
        let values = [5, 6].map(|value| scene.int8(&mut host, A, value));
        let (stored, _) = promote(&mut host, table, 1, Kind::Int8, &values).unwrap();
        let sum = int8(&mut host, "int8pl", stored[0], stored[1]);
        assert_eq!(serials(&mut host, &[stored[0], sum, stored[0]]), [1, 2, 3]);
        assert_eq!(
            serials(&mut host, &[sum]),
            [4],
            "of one statement or several"
        );
        let one = sealed(
            &mut host,
            flag::RESULT | u16::from(Kind::Int8.number()),
            &[sum],
        );
        let one = one.unwrap().remove(0);
        let (header, value) = scene.owner.open_result(&session, &one);
        assert_eq!((header.serial, value), (5, 11_i64.to_be_bytes().to_vec()));
        let other = sealed(
            &mut host,
            flag::RESULT | u16::from(Kind::Text.number()),
            &[sum],
        );
        assert_eq!(other, fault(Fault::KindMismatch));
        // Another session counts for itself.
        let (mut beside, another) = client(scene);
        assert_ne!(session, another);
        assert_eq!(serials(&mut beside, &[stored[0]]), [1]);
    });
}

/// Attack: an envelope that anybody may ask for, or one of another session, as an answer.
#[test]
fn what_is_not_asked_for_the_client_is_no_result() {
    with_zone("no-results", |scene| {
        let (mut owner, _) = client(scene);
        let table = partition(&mut owner, 16_384);
        let value = scene.int8(&mut owner, A, 5);
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &[value]).unwrap();
        let dumped = sealed(&mut owner, 0, &stored).unwrap().remove(0);
        assert_eq!(
            (header(&dumped).sealer, header(&dumped).serial),
            (Sealer::Zone, 0)
        );
        let mut host = scene.host();
        let without = sealed(&mut host, flag::RESULT, &stored).unwrap().remove(0);
        assert_eq!(header(&without).sealer, Sealer::Zone, "there is no session");
        // A dump's envelope is taken as a value of its column, a result is not.
        assert!(intake(&mut host, Kind::Int8, &dumped, 0).is_ok());
        let result = sealed(&mut owner, flag::RESULT, &stored).unwrap().remove(0);
        for ring in [&mut host, &mut owner] {
            let answer = intake(ring, Kind::Int8, &result, 0);
            assert_eq!(answer, fault(Fault::BadEnvelope));
        }
    });
}
