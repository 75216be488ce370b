//! The operations of the ring: their numbers, and what each field of the descriptor means for them.
//!
//! A descriptor is 32 bytes: `op`, `flags`, `n`, `a`, `b`, `r`. A *posted* operation leaves its
//! result in the ephemeral `r` that the backend chose; a *called* one answers with a
//! [`crate::ring::Answer`]. "In the data area" means: from the descriptor's offset `b`, `n` records
//! of the layout that the operation names. Must not: execute anything.

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Op {
    // ---- the statement and the connection ----
    /// Called. Does nothing, but reports the first fault of posted operations that was not reported
    /// yet.
    Sync = 1,
    /// Posted. The statement is over: its ephemerals are freed; the next one has number `n` (modulo
    /// 256), and its ephemerals have slots from `a`.
    StatementEnd = 2,
    /// Called. The session's time zone: `n` bytes of its name in the data area.
    TimeZone = 3,
    /// Called. Joins the parallel group of the arena `a`, whose group secret is `b`: each member
    /// reads all its arenas.
    Join = 4,
    /// Called. Answers with a new group secret of this arena.
    Lead = 5,

    // ---- values in and out ----
    /// Called. Opens one envelope, `n` bytes in the data area, of kind `flags`, into the ephemeral
    /// `r`; with flag [`flag::LITERAL`] into a literal, found again by its bytes. Answers with the
    /// FID.
    OpenEnvelope = 16,
    /// Called. Seals `n` FIDs in the data area (8 bytes each), kinds checked against `flags`, of
    /// any kind when that is 0; answers with the number of bytes written over them: for each a
    /// length (4 bytes) and an envelope. 0 when several do not fit together.
    Output = 17,
    /// Called. Promotes `n` records of [`crate::layout::promote_layout`] in the data area into
    /// partition `a`: each FID becomes a permanent one in place. Answers with the length of a redo
    /// record that follows them, 0 when none is needed.
    Promote = 18,
    /// Posted. The redo record with sequence number `a` is in the host's log, and ends there at
    /// position `b`; 0 when the host does not say.
    Inserted = 19,
    /// Called. The value `a`, kind `flags`, in clear: its binary form in the data area from `b`;
    /// answers with its length. Needs the ticket's right to declassify.
    Declassify = 20,
    /// Called. A value in clear, `n` bytes of binary form in the data area from `b`, kind `flags`,
    /// into the ephemeral `r`. Needs the ticket's right to declassify. Answers with the FID.
    Classify = 21,
    /// Posted. As [`Op::OpenEnvelope`] into the ephemeral `r`. The envelope must stay in the data
    /// area until an operation that was called later has answered.
    PostEnvelope = 22,

    // ---- computing ----
    /// Posted. Function `n` of [`crate::function`] on `a`, `b` (FIDs, or a plain number where the
    /// function takes one) into `r`. A third argument is in the descriptor before, an
    /// [`Op::ThirdArgument`].
    Compute = 32,
    /// Posted. The third argument `a` of the next operation.
    ThirdArgument = 33,
    /// Called. Function `n` that gives a truth: answers 0 or 1.
    Test = 34,
    /// Called. Compares `a` with `b`, kind `flags`: answers -1, 0, 1; with flag [`flag::EQUALITY`]
    /// only whether they are equal: 0 if they are, otherwise 1.
    Compare = 35,
    /// Called. Compares `n` FIDs in the data area (8 bytes each) with `a`, kind `flags`; with flag
    /// [`flag::PAIRS`] `n` pairs of FIDs, the first of each with the second. Writes one byte (0, 1,
    /// 2 for less, equal, greater) for each into the data area's answer half, at the same distance
    /// from its beginning as the FIDs are from the area's.
    CompareMany = 36,
    /// Called. The equality token of `a`, kind `flags`, under the statement's key.
    Token = 37,
    /// Called. Tokens of `n` FIDs in the data area, 16 bytes each, placed as by
    /// [`Op::CompareMany`]; the first 8 are what [`Op::Token`] gives.
    TokenMany = 38,
    /// Called. Sorts `n` FIDs in the data area, kind `flags`: each is replaced by its dense rank;
    /// with flag [`flag::EQUALITY`] by a number that equal values have in common.
    RankMany = 39,
    /// Called. Function `n` of two arguments that gives a truth, its first argument each of `r`
    /// FIDs in the data area, its second `a`: writes one byte (0, 1; 2 where it fails, and for all
    /// others when the batch has taken too long) for each, placed as by [`Op::CompareMany`].
    TestMany = 40,
    /// Called. Compares `a` with `b`, kind `flags`, by the keyed order of the column that `a` is
    /// stored in, or else `b`: answers -1, 0, 1. It tells which values are equal, and nothing else.
    CompareKeyed = 41,
    /// Called. A [`crate::Program`] of `n` bytes in the data area, which is kept as `r`, an
    /// ephemeral, until the statement ends.
    Program = 42,
    /// Called. Carries out program `a` for `n` rows, at most [`crate::program::ROWS_MAX`]: its
    /// inputs are in the data area, for each `n` words, an identifier (0 for NULL), a truth (0, 1;
    /// 2 for NULL) or a number. Answers with how many rows were done; the others are to be sent
    /// again. Of a condition, one byte for each of those (1 where it is true, otherwise 0; 2 where
    /// it fails), placed as by [`Op::CompareMany`]. Otherwise the rows are added to the program's
    /// groups; the fault of the first row that fails is the answer.
    RunProgram = 43,

    /// Posted. Program `a` and its groups are not needed any more.
    ForgetProgram = 44,

    // ---- aggregates ----
    /// Posted. Adds value `b` to the accumulator `r`, an ephemeral, that is made when it is not
    /// there: aggregate `n`, kind `flags`. `a` is the delimiter of `string_agg`, otherwise 0.
    Accumulate = 48,
    /// Called. The result of accumulator `a` into the ephemeral `r`; answers 0 when the result is
    /// NULL.
    Final = 49,
    /// Posted. Adds accumulator `b` to accumulator `r`, aggregate `n`, kind `flags`.
    Combine = 50,
    /// Called. The groups of program `a` from number `n` on, in the order in which their first rows
    /// came, at most [`crate::Program::groups_per_call`]: for each in the data area, from `b`, a
    /// word for each key and each aggregate. The word of a key that is an input is the input in the
    /// group's first row, a count's word is the count. A value that was computed is in an
    /// ephemeral, `r` for the first of them, `r` + 1 for the second and so on; its word is the
    /// identifier, or 0 for NULL. Answers with how many groups are written, and in
    /// `aux` with the number of all.
    Groups = 51,

    // ---- partitions ----
    /// Called. The partition of the relation in the data area ([`crate::layout::relation_layout`],
    /// then `n` columns of [`crate::layout::column_layout`], `a` bytes together): found, or made.
    /// Answers with its number, in `aux` how many values it has (at most 2^32 - 1); flag
    /// [`flag::NEW`] allows making. One that has moved to the relation ([`Op::ReassignPartition`])
    /// stays there from now on, but with [`flag::MOVING`].
    Partition = 64,
    /// Called. The transaction that dropped or truncated partition `a` has committed: the partition
    /// is removed with its key. `aux`: the length of the redo record, which is written at `b`. With
    /// [`flag::RETIRED`] only if it is the retired one that [`Op::NextRetired`] has told of with
    /// `n`, with [`flag::OF_DATABASE`] only if it is of the database `n`: a number is given out
    /// again.
    Drop = 65,
    /// Called. Partition `a` now belongs to the relation in the data area (CLUSTER, VACUUM FULL,
    /// SET TABLESPACE). Until the new relation asks for it, the former one gets it back if it asks:
    /// its host has crashed before the transaction was durable. `aux` as [`Op::Drop`].
    ReassignPartition = 66,
    /// Posted. The blocks of `n` FIDs' places are about to be read: `a` the first, `b` the last.
    Prefetch = 67,
    /// Called. Answers with how many partitions relations of the database `a` (an OID) have.
    CountPartitions = 68,
    /// Called. Answers with the least OID above `a` of a database that has partitions, in `aux`
    /// with the number of one of them; 0 if there is none.
    NextDatabase = 69,
    /// Called. Answers with the least number above `a` of a retired partition, one of a relation
    /// whose tablespace is 0: the relation is gone, but its values may still be read. 0 if there is
    /// none. `aux` tells it from later ones of its number.
    NextRetired = 70,

    // ---- the host's log ----
    /// Called. A redo record of `n` bytes in the data area, found in the host's log at position
    /// `a`.
    Replay = 80,
    /// Called. This ring has replayed the host's log up to position `a`: permanent values may be
    /// used. With [`flag::FOLLOWS`] they may be read only, and more of the log follows. `n` is the
    /// timeline of the log, 0 when it has none.
    Replayed = 81,
    /// Called. Makes the store durable up to position `a`, on the log's timeline `n`, while other
    /// rings are served; answers with the position before which the log may be cut. `aux`:
    /// [`MORE`] until the checkpoint has ended.
    Checkpoint = 82,
    /// Called. Answers with the position from which the log has to be replayed. `aux`: bit 0 when
    /// replay is needed, bit 1 when the zone follows a log that goes on; from bit 2 the timeline
    /// that the position is of, 0 when that is not known. From then on the ring that asked is the
    /// log's reader, until it closes, if there was none: it passes records to the zone, and it
    /// alone may ask for [`Op::Replay`], [`Op::Replayed`] and [`Op::Checkpoint`]. With
    /// [`flag::REACHED`], answers with the highest position that [`Op::Inserted`] has named, which
    /// the store keeps, and its timeline. (A zone that does not know the flag answers with the
    /// other position, which is not a later one.)
    Position = 83,
    /// Called, first on every connection. `a` is the generation of the server's shared memory, a
    /// random number that it draws whenever that memory is made anew. Records that earlier
    /// generations had in memory only may be lost. The log is on timeline `n`; 0 when that is not
    /// known, as in recovery.
    ServerGeneration = 84,

    // ---- reclamation ----
    /// Called. Begins marking in partition `a`: values given out or stored again from now on are
    /// not swept. `b` is the number of the last sweep that the host knows of. Answers with the
    /// number of this one, which is greater.
    MarkBegin = 96,
    /// Called. Marks `n` FIDs in the data area.
    Mark = 97,
    /// Called. Values of partition `a` that this ring has not marked go to quarantine, some
    /// thousand at a time; answers with their number. `aux`: the length of the redo record, which
    /// is written at `b`, and [`MORE`].
    Sweep = 98,
    /// Called. Values of partition `n` that are in quarantine since sweep `a` or before are freed,
    /// some thousand at a time; answers as [`Op::Sweep`].
    Free = 99,

    // ---- sessions ----
    /// Called. A nonce of `n` bytes in the data area; answers with the length of the attestation
    /// that replaces it. `aux`: [`MORE`] while the evidence is made and the nonce stays.
    Attest = 112,
    /// Called. A sealed message of `n` bytes in the data area from the data owner's client; answers
    /// with the length of the reply that replaces it.
    Message = 113,
    /// Called. Status as JSON in the data area: counts, no values. Answers with its length.
    Status = 114,
    /// Called. From now on the requests of this ring are recorded, under the name of `n` bytes in
    /// the data area; 0 ends the record.
    Record = 115,
}

macro_rules! numbered {
    ($($op:ident),* $(,)?) => {
        // Does not compile while an operation is not in the list.
        const _: fn(Op) = |op| match op {
            $(Op::$op => (),)*
        };

        impl Op {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$op),*];

            /// The operation of this number. `None` for an unknown one.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $(number if number == Self::$op as u16 => Some(Self::$op),)*
                    _ => None,
                }
            }
        }
    };
}
numbered!(
    Sync,
    StatementEnd,
    TimeZone,
    Join,
    Lead,
    OpenEnvelope,
    Output,
    Promote,
    Inserted,
    Declassify,
    Classify,
    PostEnvelope,
    Compute,
    ThirdArgument,
    Test,
    Compare,
    CompareMany,
    Token,
    TokenMany,
    RankMany,
    TestMany,
    CompareKeyed,
    Program,
    RunProgram,
    ForgetProgram,
    Accumulate,
    Final,
    Combine,
    Groups,
    Partition,
    Drop,
    ReassignPartition,
    Prefetch,
    CountPartitions,
    NextDatabase,
    NextRetired,
    Replay,
    Replayed,
    Checkpoint,
    Position,
    ServerGeneration,
    MarkBegin,
    Mark,
    Sweep,
    Free,
    Attest,
    Message,
    Status,
    Record,
);

impl Op {
    /// The operation's number in descriptors.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Whether the operation is posted, so that the backend gets no answer to it.
    #[must_use]
    pub const fn is_posted(self) -> bool {
        matches!(
            self,
            Self::StatementEnd
                | Self::Inserted
                | Self::PostEnvelope
                | Self::Compute
                | Self::ThirdArgument
                | Self::ForgetProgram
                | Self::Accumulate
                | Self::Combine
                | Self::Prefetch
        )
    }

    /// Whether the operation is independent of the statement's values: it is executed even if a
    /// posted operation has failed, and does not report that fault.
    #[must_use]
    pub const fn is_independent(self) -> bool {
        matches!(
            self,
            Self::Program
                | Self::Partition
                | Self::Drop
                | Self::ReassignPartition
                | Self::CountPartitions
                | Self::NextDatabase
                | Self::NextRetired
                | Self::Replay
                | Self::Replayed
                | Self::Checkpoint
                | Self::Position
                | Self::ServerGeneration
                | Self::Attest
                | Self::Message
                | Self::Status
                | Self::Record
        )
    }
}

/// Bit of an answer's `aux`: the operation has not ended, and has to be called again.
pub const MORE: u32 = 1 << 31;

/// Bits of `flags`; the low byte is the kind's number where an operation takes one.
pub mod flag {
    /// [`super::Op::OpenEnvelope`]: the value lives as long as the connection.
    pub const LITERAL: u16 = 1 << 8;
    /// [`super::Op::Partition`]: make it when it is not there.
    pub const NEW: u16 = 1 << 9;
    /// [`super::Op::Drop`]: only the retired partition that is meant.
    pub const RETIRED: u16 = 1 << 13;
    /// [`super::Op::Drop`]: only a partition of the database that is meant.
    pub const OF_DATABASE: u16 = 1 << 14;
    /// [`super::Op::CompareMany`]: pairs.
    pub const PAIRS: u16 = 1 << 11;
    /// [`super::Op::Compare`], [`super::Op::RankMany`]: which values are equal, and not which is
    /// less.
    pub const EQUALITY: u16 = 1 << 10;
    /// [`super::Op::CompareMany`], [`super::Op::TestMany`], [`super::Op::TokenMany`],
    /// [`super::Op::RunProgram`]: the answers are asked ahead of need. The operation does not
    /// report a fault of posted operations.
    pub const AHEAD: u16 = 1 << 12;
    /// [`super::Op::Output`]: the envelopes are results for the client of the ring's session, if it
    /// has one.
    pub const RESULT: u16 = 1 << 13;
    /// [`super::Op::Partition`]: the transaction that moves it has not committed.
    pub const MOVING: u16 = 1 << 10;
    /// [`super::Op::Position`]: up to where the log has what the store may hold.
    pub const REACHED: u16 = 1 << 9;
    /// [`super::Op::Replayed`]: the host is a replica, whose log goes on.
    pub const FOLLOWS: u16 = 1 << 11;
}
