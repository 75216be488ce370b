//! The input of the page: objects, keys and nodes of the store, and the operator's intervals.
//!
//! Must not: contain the bytes of a key. A node chose many of the texts, so that each may be
//! hostile.

/// A day in seconds.
pub const DAY_S: u64 = 86_400;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A SQLite database.
    Database,
    /// A PostgreSQL instance.
    Instance,
    /// A LUKS2 volume.
    Volume,
    /// A backup medium, described by its newest set.
    Backup,
}

impl Kind {
    /// Every kind, in the order in which the page shows them.
    pub const ALL: [Self; 4] = [Self::Database, Self::Instance, Self::Volume, Self::Backup];

    /// The word of the interface: `sqlite`, `instance`, `volume` or `backup`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Database => "sqlite",
            Self::Instance => "instance",
            Self::Volume => "volume",
            Self::Backup => "backup",
        }
    }

    /// Returns the kind of a word of the interface; `None` for another word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The name for people, in the singular.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "Database",
            Self::Instance => "Instance",
            Self::Volume => "Volume",
            Self::Backup => "Backup",
        }
    }

    /// The name for people, in the plural.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Database => "Databases",
            Self::Instance => "Instances",
            Self::Volume => "Volumes",
            Self::Backup => "Backups",
        }
    }
}

/// A node's last report of an object. Times are seconds since the Unix epoch, by the node's clock
/// except for `reported`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// The object id, 32 hexadecimal digits.
    pub id: String,
    /// The node that reports it.
    pub node: String,
    /// Its kind.
    pub kind: Kind,
    /// The node's name for it, such as a path.
    pub name: String,
    /// The cipher; `none` for an object that is not sealed.
    pub cipher: String,
    /// The key that opens it; empty if the node named none.
    pub key_id: String,
    /// The version of that key.
    pub key_version: u32,
    /// When it was made.
    pub created: u64,
    /// When it last got a new data key.
    pub rotated: Option<u64>,
    /// When its last backup ended: for a volume, that of its header; for a backup medium, its
    /// newest set.
    pub backed_up: Option<u64>,
    /// When it was last verified: read to its end and found authentic.
    pub verified: Option<u64>,
    /// When this report came, by the server's clock.
    pub reported: u64,
    /// When its node destroyed it; `None` while it exists.
    pub shredded: Option<u64>,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It is delivered to the nodes to which it is granted.
    Active,
    /// It is not delivered until it is enabled again.
    Disabled,
    /// It will be destroyed, and can be restored until then.
    Pending {
        /// When, in seconds since the Unix epoch.
        at: u64,
    },
    /// Its bytes were erased.
    Destroyed,
}

/// A key of the server, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: KeyState,
    /// The number of every version and when it was created, the oldest first.
    pub versions: Vec<(u32, u64)>,
    /// The nodes to which it is granted.
    pub nodes: Vec<String>,
    /// The request for its destruction that waits for a second administrator.
    pub destroy_request: Option<PendingDestroyRequest>,
}

/// A request for a key's destruction to which a second administrator has to agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDestroyRequest {
    /// The administrator who made the request.
    pub by: String,
    /// How many seconds after the second one's request the key is to be destroyed.
    pub after_s: u64,
    /// When the request expires, in seconds since the Unix epoch.
    pub until: u64,
}

impl KeyRecord {
    /// Returns the number of the newest version and when it was created; `None` without versions.
    #[must_use]
    pub fn latest(&self) -> Option<(u32, u64)> {
        self.versions.iter().copied().max()
    }

    /// Returns when a version was created, in seconds since the Unix epoch; `None` if there is no
    /// such version.
    #[must_use]
    pub fn created(&self, version: u32) -> Option<u64> {
        let found = self.versions.iter().find(|(number, _)| *number == version);
        found.map(|(_, created)| *created)
    }
}

/// A client of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its name.
    pub name: String,
    /// `node`, `viewer` or `admin`.
    pub role: String,
    /// When it was enrolled.
    pub enrolled: Option<u64>,
    /// When its certificate expires.
    pub expires: Option<u64>,
}

/// The operator's intervals, in days. 0: no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// For a new data key of an object, and for a new version of a key.
    pub rotation_days: u32,
    /// For a backup of an object.
    pub backup_days: u32,
    /// For the verification of an object.
    pub verification_days: u32,
    /// For a report of an object.
    pub report_days: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rotation_days: 365,
            backup_days: 1,
            verification_days: 30,
            report_days: 2,
        }
    }
}

/// All input of the page.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Objects that nodes report.
    pub objects: Vec<ObjectRecord>,
    /// Keys that the server keeps.
    pub keys: Vec<KeyRecord>,
    /// Enrolled clients.
    pub nodes: Vec<NodeRecord>,
    /// Whether there are more records than were read.
    pub cut: bool,
}
