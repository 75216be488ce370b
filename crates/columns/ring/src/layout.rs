//! Records in a ring's data area. Little-endian, as the processor keeps them: both ends run on one
//! machine.

use strongroom_format::layout::Field;

/// One value to be promoted: 16 bytes.
pub mod promote_layout {
    use super::Field;
    /// Length of the record.
    pub const SIZE: usize = 16;
    /// The FID, replaced by the permanent one.
    pub const FID: Field = Field {
        name: "FID",
        offset: 0,
        len: 8,
    };
    /// Number of the column in its relation (`attnum`).
    pub const COLUMN: Field = Field {
        name: "COLUMN",
        offset: 8,
        len: 2,
    };
    /// Kind of the column.
    pub const KIND: Field = Field {
        name: "KIND",
        offset: 10,
        len: 1,
    };
    /// Zero.
    pub const RESERVED: Field = Field {
        name: "RESERVED",
        offset: 11,
        len: 5,
    };
}

/// A relation as PostgreSQL identifies its files: 16 bytes.
pub mod relation_layout {
    use super::Field;
    /// Length of the record.
    pub const SIZE: usize = 16;
    /// OID of the tablespace.
    pub const TABLESPACE: Field = Field {
        name: "TABLESPACE",
        offset: 0,
        len: 4,
    };
    /// OID of the database; 0 for none.
    pub const DATABASE: Field = Field {
        name: "DATABASE",
        offset: 4,
        len: 4,
    };
    /// `relfilenode`.
    pub const FILENODE: Field = Field {
        name: "FILENODE",
        offset: 8,
        len: 4,
    };
    /// OID of the relation, for the ledger.
    pub const RELATION: Field = Field {
        name: "RELATION",
        offset: 12,
        len: 4,
    };
}

/// A column of a relation: 20 bytes.
pub mod column_layout {
    use super::Field;
    /// Length of the record.
    pub const SIZE: usize = 20;
    /// `attnum`.
    pub const COLUMN: Field = Field {
        name: "COLUMN",
        offset: 0,
        len: 2,
    };
    /// Kind.
    pub const KIND: Field = Field {
        name: "KIND",
        offset: 2,
        len: 1,
    };
    /// Zero.
    pub const RESERVED: Field = Field {
        name: "RESERVED",
        offset: 3,
        len: 1,
    };
    /// Id of the column key; zeros when none was bound yet.
    pub const KEY_ID: Field = Field {
        name: "KEY_ID",
        offset: 4,
        len: 16,
    };
}
