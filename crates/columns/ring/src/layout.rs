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

/// A confidential column of a relation: 8 bytes, and its name behind.
pub mod column_layout {
    use super::Field;
    /// Length of the record, without the name.
    pub const SIZE: usize = 8;
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
    /// Number of its class, as in a lineage.
    pub const CLASS: Field = Field {
        name: "CLASS",
        offset: 3,
        len: 1,
    };
    /// Length of the name that follows: those of database, schema, relation and column, a zero byte
    /// between them. 0 for an opaque column, which has no lineage by its name.
    pub const NAME: Field = Field {
        name: "NAME",
        offset: 4,
        len: 2,
    };
    /// Zero.
    pub const RESERVED: Field = Field {
        name: "RESERVED",
        offset: 6,
        len: 2,
    };
}
