//! What the page is made from: objects, keys and nodes as the store has them, and the operator's intervals.
//!
//! Must not: hold key material, or believe what a node reports: every text in here may be hostile.

/// A day in seconds.
pub const DAY_S: u64 = 86_400;

/// What kind of thing a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A SQLite database.
    Database,
    /// A PostgreSQL instance.
    Instance,
    /// A LUKS2 volume.
    Volume,
    /// A backup medium, seen by its newest set.
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

    /// The kind of a word of the interface.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// For people, in the singular.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Database => "Database",
            Self::Instance => "Instance",
            Self::Volume => "Volume",
            Self::Backup => "Backup",
        }
    }

    /// For people, in the plural.
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

/// A node's last report on one object. Times are seconds since 1970, by the node's clock but for `reported`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Object id, 32 hexadecimal digits.
    pub id: String,
    /// The node that reports it.
    pub node: String,
    /// What it is.
    pub kind: Kind,
    /// The node's name for it, such as a path.
    pub name: String,
    /// Cipher suite; `none` for what is not sealed.
    pub cipher: String,
    /// Key that opens it; empty if the node named none.
    pub key_id: String,
    /// Version of that key.
    pub key_version: u32,
    /// When it was made.
    pub created: u64,
    /// When it last got a new data key.
    pub rotated: Option<u64>,
    /// When its last backup ended; of a volume, that of its header; of a backup medium, its newest set.
    pub backed_up: Option<u64>,
    /// When it was last read to its end and found authentic.
    pub verified: Option<u64>,
    /// When this report came, by the server's clock.
    pub reported: u64,
    /// When its node destroyed it; none for one that is there.
    pub shredded: Option<u64>,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Delivered to those who are granted it.
    Active,
    /// Not delivered until it is enabled again.
    Disabled,
    /// To be destroyed at a time; until then it can be restored.
    Pending {
        /// When.
        at: u64,
    },
    /// Material erased.
    Destroyed,
}

/// A key of the server, without its material.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: KeyState,
    /// Number and time of every version, the oldest first.
    pub versions: Vec<(u32, u64)>,
    /// Nodes that are granted it.
    pub nodes: Vec<String>,
    /// The request for its destruction that waits for a second administrator.
    pub destroy_asked: Option<DestroyAsked>,
}

/// That an administrator asked for a key's destruction, and a second one has to agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestroyAsked {
    /// Who asked.
    pub by: String,
    /// How many seconds after the second one's request the key is to be destroyed.
    pub after_s: u64,
    /// When the request ends, in seconds since the Unix epoch.
    pub until: u64,
}

impl KeyRecord {
    /// Number and time of the newest version.
    #[must_use]
    pub fn latest(&self) -> Option<(u32, u64)> {
        self.versions.iter().copied().max()
    }

    /// When a version was made.
    #[must_use]
    pub fn made(&self, version: u32) -> Option<u64> {
        let found = self.versions.iter().find(|(number, _)| *number == version);
        found.map(|(_, made)| *made)
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

/// How often things are to be done, in days. 0: not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A new data key of an object, a new version of a key.
    pub rotation_days: u32,
    /// A backup of an object.
    pub backup_days: u32,
    /// An object read to its end.
    pub verification_days: u32,
    /// A report by the node that has the object.
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

/// All that the page is made from.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Objects that nodes report.
    pub objects: Vec<ObjectRecord>,
    /// Keys that the server keeps.
    pub keys: Vec<KeyRecord>,
    /// Clients that are enrolled.
    pub nodes: Vec<NodeRecord>,
    /// Whether there are more than were read.
    pub cut: bool,
}
