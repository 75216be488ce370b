-- strongroom_columns: confidential columns.
-- Made by crates/columns/extension/script from crates/columns/ring/src/function.rs: change those, not this.
\echo Use "CREATE EXTENSION strongroom_columns" to load this file. \quit

-- statistics without values
CREATE FUNCTION strongroom_typanalyze(internal) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_typanalyze' LANGUAGE C STABLE STRICT;

-- enc_bool
CREATE TYPE enc_bool;
CREATE FUNCTION enc_bool_in(cstring, oid, integer) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bool_out(enc_bool) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bool_recv(internal, oid, integer) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bool_send(enc_bool) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bool_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_bool_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_bool (
    INPUT = enc_bool_in, OUTPUT = enc_bool_out, RECEIVE = enc_bool_recv, SEND = enc_bool_send,
    TYPMOD_IN = enc_bool_typmod_in, TYPMOD_OUT = enc_bool_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'b', PREFERRED = true
);
COMMENT ON TYPE enc_bool IS 'confidential bool: kept outside of the server';

-- enc_int4
CREATE TYPE enc_int4;
CREATE FUNCTION enc_int4_in(cstring, oid, integer) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int4_out(enc_int4) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int4_recv(internal, oid, integer) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int4_send(enc_int4) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int4_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_int4_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_int4 (
    INPUT = enc_int4_in, OUTPUT = enc_int4_out, RECEIVE = enc_int4_recv, SEND = enc_int4_send,
    TYPMOD_IN = enc_int4_typmod_in, TYPMOD_OUT = enc_int4_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'n', PREFERRED = false
);
COMMENT ON TYPE enc_int4 IS 'confidential int4: kept outside of the server';

-- enc_int8
CREATE TYPE enc_int8;
CREATE FUNCTION enc_int8_in(cstring, oid, integer) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int8_out(enc_int8) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int8_recv(internal, oid, integer) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int8_send(enc_int8) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int8_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_int8_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_int8 (
    INPUT = enc_int8_in, OUTPUT = enc_int8_out, RECEIVE = enc_int8_recv, SEND = enc_int8_send,
    TYPMOD_IN = enc_int8_typmod_in, TYPMOD_OUT = enc_int8_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'n', PREFERRED = false
);
COMMENT ON TYPE enc_int8 IS 'confidential int8: kept outside of the server';

-- enc_float8
CREATE TYPE enc_float8;
CREATE FUNCTION enc_float8_in(cstring, oid, integer) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_float8_out(enc_float8) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_float8_recv(internal, oid, integer) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_float8_send(enc_float8) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_float8_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_float8_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_float8 (
    INPUT = enc_float8_in, OUTPUT = enc_float8_out, RECEIVE = enc_float8_recv, SEND = enc_float8_send,
    TYPMOD_IN = enc_float8_typmod_in, TYPMOD_OUT = enc_float8_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'n', PREFERRED = true
);
COMMENT ON TYPE enc_float8 IS 'confidential float8: kept outside of the server';

-- enc_numeric
CREATE TYPE enc_numeric;
CREATE FUNCTION enc_numeric_in(cstring, oid, integer) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_numeric_out(enc_numeric) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_numeric_recv(internal, oid, integer) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_numeric_send(enc_numeric) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_numeric_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_numeric_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_numeric (
    INPUT = enc_numeric_in, OUTPUT = enc_numeric_out, RECEIVE = enc_numeric_recv, SEND = enc_numeric_send,
    TYPMOD_IN = enc_numeric_typmod_in, TYPMOD_OUT = enc_numeric_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'n', PREFERRED = false
);
COMMENT ON TYPE enc_numeric IS 'confidential numeric: kept outside of the server';

-- enc_text
CREATE TYPE enc_text;
CREATE FUNCTION enc_text_in(cstring, oid, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_text_out(enc_text) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_text_recv(internal, oid, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_text_send(enc_text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_text_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_text_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_text (
    INPUT = enc_text_in, OUTPUT = enc_text_out, RECEIVE = enc_text_recv, SEND = enc_text_send,
    TYPMOD_IN = enc_text_typmod_in, TYPMOD_OUT = enc_text_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 's', PREFERRED = true
);
COMMENT ON TYPE enc_text IS 'confidential text: kept outside of the server';

-- enc_bytea
CREATE TYPE enc_bytea;
CREATE FUNCTION enc_bytea_in(cstring, oid, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bytea_out(enc_bytea) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bytea_recv(internal, oid, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bytea_send(enc_bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bytea_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_bytea_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_bytea (
    INPUT = enc_bytea_in, OUTPUT = enc_bytea_out, RECEIVE = enc_bytea_recv, SEND = enc_bytea_send,
    TYPMOD_IN = enc_bytea_typmod_in, TYPMOD_OUT = enc_bytea_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'u', PREFERRED = false
);
COMMENT ON TYPE enc_bytea IS 'confidential bytea: kept outside of the server';

-- enc_date
CREATE TYPE enc_date;
CREATE FUNCTION enc_date_in(cstring, oid, integer) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_date_out(enc_date) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_date_recv(internal, oid, integer) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_date_send(enc_date) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_date_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_date_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_date (
    INPUT = enc_date_in, OUTPUT = enc_date_out, RECEIVE = enc_date_recv, SEND = enc_date_send,
    TYPMOD_IN = enc_date_typmod_in, TYPMOD_OUT = enc_date_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'd', PREFERRED = false
);
COMMENT ON TYPE enc_date IS 'confidential date: kept outside of the server';

-- enc_timestamp
CREATE TYPE enc_timestamp;
CREATE FUNCTION enc_timestamp_in(cstring, oid, integer) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamp_out(enc_timestamp) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamp_recv(internal, oid, integer) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamp_send(enc_timestamp) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamp_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_timestamp_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_timestamp (
    INPUT = enc_timestamp_in, OUTPUT = enc_timestamp_out, RECEIVE = enc_timestamp_recv, SEND = enc_timestamp_send,
    TYPMOD_IN = enc_timestamp_typmod_in, TYPMOD_OUT = enc_timestamp_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'd', PREFERRED = false
);
COMMENT ON TYPE enc_timestamp IS 'confidential timestamp: kept outside of the server';

-- enc_timestamptz
CREATE TYPE enc_timestamptz;
CREATE FUNCTION enc_timestamptz_in(cstring, oid, integer) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamptz_out(enc_timestamptz) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamptz_recv(internal, oid, integer) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamptz_send(enc_timestamptz) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamptz_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_timestamptz_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_timestamptz (
    INPUT = enc_timestamptz_in, OUTPUT = enc_timestamptz_out, RECEIVE = enc_timestamptz_recv, SEND = enc_timestamptz_send,
    TYPMOD_IN = enc_timestamptz_typmod_in, TYPMOD_OUT = enc_timestamptz_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'd', PREFERRED = true
);
COMMENT ON TYPE enc_timestamptz IS 'confidential timestamptz: kept outside of the server';

-- enc_interval
CREATE TYPE enc_interval;
CREATE FUNCTION enc_interval_in(cstring, oid, integer) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_interval_out(enc_interval) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_interval_recv(internal, oid, integer) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_interval_send(enc_interval) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_interval_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_interval_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_interval (
    INPUT = enc_interval_in, OUTPUT = enc_interval_out, RECEIVE = enc_interval_recv, SEND = enc_interval_send,
    TYPMOD_IN = enc_interval_typmod_in, TYPMOD_OUT = enc_interval_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 't', PREFERRED = true
);
COMMENT ON TYPE enc_interval IS 'confidential interval: kept outside of the server';

-- enc_uuid
CREATE TYPE enc_uuid;
CREATE FUNCTION enc_uuid_in(cstring, oid, integer) RETURNS enc_uuid
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_uuid_out(enc_uuid) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_uuid_recv(internal, oid, integer) RETURNS enc_uuid
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_uuid_send(enc_uuid) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_uuid_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_uuid_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_uuid (
    INPUT = enc_uuid_in, OUTPUT = enc_uuid_out, RECEIVE = enc_uuid_recv, SEND = enc_uuid_send,
    TYPMOD_IN = enc_uuid_typmod_in, TYPMOD_OUT = enc_uuid_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'u', PREFERRED = false
);
COMMENT ON TYPE enc_uuid IS 'confidential uuid: kept outside of the server';

-- enc_time
CREATE TYPE enc_time;
CREATE FUNCTION enc_time_in(cstring, oid, integer) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_time_out(enc_time) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_time_recv(internal, oid, integer) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_time_send(enc_time) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_time_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_time_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_time (
    INPUT = enc_time_in, OUTPUT = enc_time_out, RECEIVE = enc_time_recv, SEND = enc_time_send,
    TYPMOD_IN = enc_time_typmod_in, TYPMOD_OUT = enc_time_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'd', PREFERRED = false
);
COMMENT ON TYPE enc_time IS 'confidential time: kept outside of the server';

-- enc_jsonb
CREATE TYPE enc_jsonb;
CREATE FUNCTION enc_jsonb_in(cstring, oid, integer) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_in' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_jsonb_out(enc_jsonb) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_out' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_jsonb_recv(internal, oid, integer) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_recv' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_jsonb_send(enc_jsonb) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_send' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_jsonb_typmod_in(cstring[]) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION enc_jsonb_typmod_out(integer) RETURNS cstring
    AS 'MODULE_PATHNAME', 'strongroom_typmod_out' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE enc_jsonb (
    INPUT = enc_jsonb_in, OUTPUT = enc_jsonb_out, RECEIVE = enc_jsonb_recv, SEND = enc_jsonb_send,
    TYPMOD_IN = enc_jsonb_typmod_in, TYPMOD_OUT = enc_jsonb_typmod_out,
    ANALYZE = strongroom_typanalyze, INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain,
    CATEGORY = 'u', PREFERRED = false
);
COMMENT ON TYPE enc_jsonb IS 'confidential jsonb: kept outside of the server';

-- comparison
CREATE FUNCTION strongroom_range_selectivity(internal, oid, internal, integer) RETURNS double precision
    AS 'MODULE_PATHNAME', 'strongroom_range_selectivity' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_bool_lt(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_bool_le(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_bool_eq(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_bool_ge(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_bool_gt(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_bool_ne(enc_bool, enc_bool) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_bool, RIGHTARG = enc_bool, FUNCTION = enc_bool_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_bool_cmp(enc_bool, enc_bool) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_bool_hash(enc_bool) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_bool_hash_extended(enc_bool, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_bool_ops DEFAULT FOR TYPE enc_bool USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_bool_cmp(enc_bool, enc_bool);
CREATE OPERATOR CLASS enc_bool_ops DEFAULT FOR TYPE enc_bool USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_bool_hash(enc_bool), FUNCTION 2 enc_bool_hash_extended(enc_bool, bigint);
CREATE FUNCTION enc_int4_lt(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_int4_le(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_int4_eq(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_int4_ge(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_int4_gt(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_int4_ne(enc_int4, enc_int4) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_int4_cmp(enc_int4, enc_int4) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_int4_hash(enc_int4) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_int4_hash_extended(enc_int4, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_int4_ops DEFAULT FOR TYPE enc_int4 USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_int4_cmp(enc_int4, enc_int4);
CREATE OPERATOR CLASS enc_int4_ops DEFAULT FOR TYPE enc_int4 USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_int4_hash(enc_int4), FUNCTION 2 enc_int4_hash_extended(enc_int4, bigint);
CREATE FUNCTION enc_int8_lt(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_int8_le(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_int8_eq(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_int8_ge(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_int8_gt(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_int8_ne(enc_int8, enc_int8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_int8_cmp(enc_int8, enc_int8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_int8_hash(enc_int8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_int8_hash_extended(enc_int8, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_int8_ops DEFAULT FOR TYPE enc_int8 USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_int8_cmp(enc_int8, enc_int8);
CREATE OPERATOR CLASS enc_int8_ops DEFAULT FOR TYPE enc_int8 USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_int8_hash(enc_int8), FUNCTION 2 enc_int8_hash_extended(enc_int8, bigint);
CREATE FUNCTION enc_float8_lt(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_float8_le(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_float8_eq(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_float8_ge(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_float8_gt(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_float8_ne(enc_float8, enc_float8) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_float8_cmp(enc_float8, enc_float8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_float8_hash(enc_float8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_float8_hash_extended(enc_float8, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_float8_ops DEFAULT FOR TYPE enc_float8 USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_float8_cmp(enc_float8, enc_float8);
CREATE OPERATOR CLASS enc_float8_ops DEFAULT FOR TYPE enc_float8 USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_float8_hash(enc_float8), FUNCTION 2 enc_float8_hash_extended(enc_float8, bigint);
CREATE FUNCTION enc_numeric_lt(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_numeric_le(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_numeric_eq(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_numeric_ge(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_numeric_gt(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_numeric_ne(enc_numeric, enc_numeric) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_numeric_cmp(enc_numeric, enc_numeric) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_numeric_hash(enc_numeric) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_numeric_hash_extended(enc_numeric, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_numeric_ops DEFAULT FOR TYPE enc_numeric USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_numeric_cmp(enc_numeric, enc_numeric);
CREATE OPERATOR CLASS enc_numeric_ops DEFAULT FOR TYPE enc_numeric USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_numeric_hash(enc_numeric), FUNCTION 2 enc_numeric_hash_extended(enc_numeric, bigint);
CREATE FUNCTION enc_text_lt(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_text_le(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_text_eq(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_text_ge(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_text_gt(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_text_ne(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_text_cmp(enc_text, enc_text) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_text_hash(enc_text) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_text_hash_extended(enc_text, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_text_ops DEFAULT FOR TYPE enc_text USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_text_cmp(enc_text, enc_text);
CREATE OPERATOR CLASS enc_text_ops DEFAULT FOR TYPE enc_text USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_text_hash(enc_text), FUNCTION 2 enc_text_hash_extended(enc_text, bigint);
CREATE FUNCTION enc_bytea_lt(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_bytea_le(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_bytea_eq(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_bytea_ge(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_bytea_gt(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_bytea_ne(enc_bytea, enc_bytea) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_bytea_cmp(enc_bytea, enc_bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_bytea_hash(enc_bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_bytea_hash_extended(enc_bytea, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_bytea_ops DEFAULT FOR TYPE enc_bytea USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_bytea_cmp(enc_bytea, enc_bytea);
CREATE OPERATOR CLASS enc_bytea_ops DEFAULT FOR TYPE enc_bytea USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_bytea_hash(enc_bytea), FUNCTION 2 enc_bytea_hash_extended(enc_bytea, bigint);
CREATE FUNCTION enc_date_lt(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_date_le(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_date_eq(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_date_ge(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_date_gt(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_date_ne(enc_date, enc_date) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_date_cmp(enc_date, enc_date) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_date_hash(enc_date) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_date_hash_extended(enc_date, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_date_ops DEFAULT FOR TYPE enc_date USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_date_cmp(enc_date, enc_date);
CREATE OPERATOR CLASS enc_date_ops DEFAULT FOR TYPE enc_date USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_date_hash(enc_date), FUNCTION 2 enc_date_hash_extended(enc_date, bigint);
CREATE FUNCTION enc_timestamp_lt(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_timestamp_le(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_timestamp_eq(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_timestamp_ge(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_timestamp_gt(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_timestamp_ne(enc_timestamp, enc_timestamp) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_timestamp_cmp(enc_timestamp, enc_timestamp) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_timestamp_hash(enc_timestamp) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_timestamp_hash_extended(enc_timestamp, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_timestamp_ops DEFAULT FOR TYPE enc_timestamp USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_timestamp_cmp(enc_timestamp, enc_timestamp);
CREATE OPERATOR CLASS enc_timestamp_ops DEFAULT FOR TYPE enc_timestamp USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_timestamp_hash(enc_timestamp), FUNCTION 2 enc_timestamp_hash_extended(enc_timestamp, bigint);
CREATE FUNCTION enc_timestamptz_lt(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_timestamptz_le(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_timestamptz_eq(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_timestamptz_ge(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_timestamptz_gt(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_timestamptz_ne(enc_timestamptz, enc_timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_timestamptz_cmp(enc_timestamptz, enc_timestamptz) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_timestamptz_hash(enc_timestamptz) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_timestamptz_hash_extended(enc_timestamptz, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_timestamptz_ops DEFAULT FOR TYPE enc_timestamptz USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_timestamptz_cmp(enc_timestamptz, enc_timestamptz);
CREATE OPERATOR CLASS enc_timestamptz_ops DEFAULT FOR TYPE enc_timestamptz USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_timestamptz_hash(enc_timestamptz), FUNCTION 2 enc_timestamptz_hash_extended(enc_timestamptz, bigint);
CREATE FUNCTION enc_interval_lt(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_interval_le(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_interval_eq(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_interval_ge(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_interval_gt(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_interval_ne(enc_interval, enc_interval) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = enc_interval_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_interval_cmp(enc_interval, enc_interval) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_interval_hash(enc_interval) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_interval_hash_extended(enc_interval, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_interval_ops DEFAULT FOR TYPE enc_interval USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_interval_cmp(enc_interval, enc_interval);
CREATE OPERATOR CLASS enc_interval_ops DEFAULT FOR TYPE enc_interval USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_interval_hash(enc_interval), FUNCTION 2 enc_interval_hash_extended(enc_interval, bigint);
CREATE FUNCTION enc_uuid_lt(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_uuid_le(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_uuid_eq(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_uuid_ge(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_uuid_gt(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_uuid_ne(enc_uuid, enc_uuid) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_uuid_cmp(enc_uuid, enc_uuid) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_uuid_hash(enc_uuid) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_uuid_hash_extended(enc_uuid, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_uuid_ops DEFAULT FOR TYPE enc_uuid USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_uuid_cmp(enc_uuid, enc_uuid);
CREATE OPERATOR CLASS enc_uuid_ops DEFAULT FOR TYPE enc_uuid USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_uuid_hash(enc_uuid), FUNCTION 2 enc_uuid_hash_extended(enc_uuid, bigint);
CREATE FUNCTION enc_time_lt(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_time_le(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_time_eq(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_time_ge(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_time_gt(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_time_ne(enc_time, enc_time) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_time_cmp(enc_time, enc_time) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_time_hash(enc_time) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_time_hash_extended(enc_time, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_time_ops DEFAULT FOR TYPE enc_time USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_time_cmp(enc_time, enc_time);
CREATE OPERATOR CLASS enc_time_ops DEFAULT FOR TYPE enc_time USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_time_hash(enc_time), FUNCTION 2 enc_time_hash_extended(enc_time, bigint);
CREATE FUNCTION enc_jsonb_lt(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_lt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR < (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_lt, COMMUTATOR = >, NEGATOR = >=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarltjoinsel);
CREATE FUNCTION enc_jsonb_le(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_le' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <= (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_le, COMMUTATOR = >=, NEGATOR = >,
    RESTRICT = strongroom_range_selectivity, JOIN = scalarlejoinsel);
CREATE FUNCTION enc_jsonb_eq(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_eq' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR = (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_eq, COMMUTATOR = =, NEGATOR = <>,
    RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
CREATE FUNCTION enc_jsonb_ge(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ge' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR >= (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_ge, COMMUTATOR = <=, NEGATOR = <,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargejoinsel);
CREATE FUNCTION enc_jsonb_gt(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_gt' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR > (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_gt, COMMUTATOR = <, NEGATOR = <=,
    RESTRICT = strongroom_range_selectivity, JOIN = scalargtjoinsel);
CREATE FUNCTION enc_jsonb_ne(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_ne' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR <> (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = enc_jsonb_ne, COMMUTATOR = <>, NEGATOR = =,
    RESTRICT = neqsel, JOIN = neqjoinsel);
CREATE FUNCTION enc_jsonb_cmp(enc_jsonb, enc_jsonb) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_jsonb_hash(enc_jsonb) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_hash' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION enc_jsonb_hash_extended(enc_jsonb, bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_hash_extended' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_jsonb_ops DEFAULT FOR TYPE enc_jsonb USING btree AS
    OPERATOR 1 <,
    OPERATOR 2 <=,
    OPERATOR 3 =,
    OPERATOR 4 >=,
    OPERATOR 5 >,
    FUNCTION 1 enc_jsonb_cmp(enc_jsonb, enc_jsonb);
CREATE OPERATOR CLASS enc_jsonb_ops DEFAULT FOR TYPE enc_jsonb USING hash AS
    OPERATOR 1 =, FUNCTION 1 enc_jsonb_hash(enc_jsonb), FUNCTION 2 enc_jsonb_hash_extended(enc_jsonb, bigint);

-- indexes on columns of class equality
CREATE OPERATOR FAMILY enc_unsorted_ops USING btree;
CREATE FUNCTION enc_int4_keyed_cmp(enc_int4, enc_int4) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_int4_equality_ops FOR TYPE enc_int4 USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_int4_keyed_cmp(enc_int4, enc_int4);
CREATE OPERATOR == (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = enc_int4_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_int4, enc_int4);
CREATE FUNCTION enc_int8_keyed_cmp(enc_int8, enc_int8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_int8_equality_ops FOR TYPE enc_int8 USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_int8_keyed_cmp(enc_int8, enc_int8);
CREATE OPERATOR == (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = enc_int8_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_int8, enc_int8);
CREATE FUNCTION enc_float8_keyed_cmp(enc_float8, enc_float8) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_float8_equality_ops FOR TYPE enc_float8 USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_float8_keyed_cmp(enc_float8, enc_float8);
CREATE OPERATOR == (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = enc_float8_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_float8, enc_float8);
CREATE FUNCTION enc_numeric_keyed_cmp(enc_numeric, enc_numeric) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_numeric_equality_ops FOR TYPE enc_numeric USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_numeric_keyed_cmp(enc_numeric, enc_numeric);
CREATE OPERATOR == (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = enc_numeric_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_numeric, enc_numeric);
CREATE FUNCTION enc_text_keyed_cmp(enc_text, enc_text) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_text_equality_ops FOR TYPE enc_text USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_text_keyed_cmp(enc_text, enc_text);
CREATE OPERATOR == (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = enc_text_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_text, enc_text);
CREATE FUNCTION enc_bytea_keyed_cmp(enc_bytea, enc_bytea) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_bytea_equality_ops FOR TYPE enc_bytea USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_bytea_keyed_cmp(enc_bytea, enc_bytea);
CREATE OPERATOR == (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = enc_bytea_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_bytea, enc_bytea);
CREATE FUNCTION enc_date_keyed_cmp(enc_date, enc_date) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_date_equality_ops FOR TYPE enc_date USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_date_keyed_cmp(enc_date, enc_date);
CREATE OPERATOR == (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = enc_date_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_date, enc_date);
CREATE FUNCTION enc_timestamp_keyed_cmp(enc_timestamp, enc_timestamp) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_timestamp_equality_ops FOR TYPE enc_timestamp USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_timestamp_keyed_cmp(enc_timestamp, enc_timestamp);
CREATE OPERATOR == (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = enc_timestamp_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_timestamp, enc_timestamp);
CREATE FUNCTION enc_timestamptz_keyed_cmp(enc_timestamptz, enc_timestamptz) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_timestamptz_equality_ops FOR TYPE enc_timestamptz USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_timestamptz_keyed_cmp(enc_timestamptz, enc_timestamptz);
CREATE OPERATOR == (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = enc_timestamptz_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_timestamptz, enc_timestamptz);
CREATE FUNCTION enc_uuid_keyed_cmp(enc_uuid, enc_uuid) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_uuid_equality_ops FOR TYPE enc_uuid USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_uuid_keyed_cmp(enc_uuid, enc_uuid);
CREATE OPERATOR == (LEFTARG = enc_uuid, RIGHTARG = enc_uuid, FUNCTION = enc_uuid_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_uuid, enc_uuid);
CREATE FUNCTION enc_time_keyed_cmp(enc_time, enc_time) RETURNS integer
    AS 'MODULE_PATHNAME', 'strongroom_keyed_cmp' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL RESTRICTED COST 10;
CREATE OPERATOR CLASS enc_time_equality_ops FOR TYPE enc_time USING btree AS
    OPERATOR 3 =,
    FUNCTION 1 enc_time_keyed_cmp(enc_time, enc_time);
CREATE OPERATOR == (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = enc_time_eq, COMMUTATOR = ==,
    RESTRICT = eqsel, JOIN = eqjoinsel);
ALTER OPERATOR FAMILY enc_unsorted_ops USING btree ADD OPERATOR 3 == (enc_time, enc_time);

-- functions
CREATE FUNCTION "int4pl"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4mi"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4mul"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4div"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4mod"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "mod"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4um"(enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "abs"(enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8pl"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8mi"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8mul"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8div"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8mod"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "mod"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8um"(enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "abs"(enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8pl"(enc_float8, enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8mi"(enc_float8, enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8mul"(enc_float8, enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8div"(enc_float8, enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8um"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "abs"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "sqrt"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "round"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "trunc"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "ceil"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "ceiling"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "floor"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "sign"(enc_float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_add"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_sub"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_mul"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_div"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_mod"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "mod"(enc_numeric, enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric_uminus"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "abs"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "round"(enc_numeric, integer) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "round"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "trunc"(enc_numeric, integer) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "trunc"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "ceil"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "ceiling"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "floor"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "sqrt"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "sign"(enc_numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "textcat"(enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "upper"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "lower"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "length"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "char_length"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "character_length"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."substring"(enc_text, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "substr"(enc_text, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."substring"(enc_text, integer, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "substr"(enc_text, integer, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "left"(enc_text, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "right"(enc_text, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."btrim"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."ltrim"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."rtrim"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "strpos"(enc_text, enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."position"(enc_text, enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "replace"(enc_text, enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "octet_length"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "textlike"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "textnlike"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "texticlike"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "texticnlike"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."like_escape"(enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "starts_with"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."btrim"(enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."ltrim"(enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."rtrim"(enc_text, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "lpad"(enc_text, integer, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "rpad"(enc_text, integer, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "split_part"(enc_text, enc_text, integer) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "reverse"(enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "ascii"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "byteacat"(enc_bytea, enc_bytea) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "length"(enc_bytea) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "char_length"(enc_bytea) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "character_length"(enc_bytea) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."substring"(enc_bytea, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "substr"(enc_bytea, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."substring"(enc_bytea, integer, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "substr"(enc_bytea, integer, integer) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "textregexeq"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "textregexne"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "texticregexeq"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "texticregexne"(enc_text, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_pli"(enc_date, enc_int4) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_mii"(enc_date, enc_int4) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_mi"(enc_date, enc_date) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_pl_interval"(enc_date, enc_interval) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_mi_interval"(enc_date, enc_interval) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_part"(text, enc_date) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."extract"(text, enc_date) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamp_pl_interval"(enc_timestamp, enc_interval) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamp_mi_interval"(enc_timestamp, enc_interval) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamp_mi"(enc_timestamp, enc_timestamp) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_part"(text, enc_timestamp) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."extract"(text, enc_timestamp) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_trunc"(text, enc_timestamp) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamptz_pl_interval"(enc_timestamptz, enc_interval) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamptz_mi_interval"(enc_timestamptz, enc_interval) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamptz_mi"(enc_timestamptz, enc_timestamptz) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_part"(text, enc_timestamptz) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."extract"(text, enc_timestamptz) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_trunc"(text, enc_timestamptz) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_trunc"(text, enc_timestamptz, enc_text) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timezone"(enc_text, enc_timestamptz) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timezone"(enc_text, enc_timestamp) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_pl"(enc_interval, enc_interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_mi"(enc_interval, enc_interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_um"(enc_interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_mul"(enc_interval, enc_float8) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_part"(text, enc_interval) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."extract"(text, enc_interval) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_div"(enc_interval, enc_float8) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "integer_pl_date"(enc_int4, enc_date) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_pl_date"(enc_interval, enc_date) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_pl_timestamp"(enc_interval, enc_timestamp) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_pl_timestamptz"(enc_interval, enc_timestamptz) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "mul_d_interval"(enc_float8, enc_interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time_pl_interval"(enc_time, enc_interval) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time_mi_interval"(enc_time, enc_interval) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval_pl_time"(enc_interval, enc_time) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time_mi_time"(enc_time, enc_time) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "datetime_pl"(enc_date, enc_time) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timedate_pl"(enc_time, enc_date) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_part"(text, enc_time) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION pg_catalog."extract"(text, enc_time) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date_trunc"(text, enc_interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4and"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4or"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4xor"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4not"(enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4shl"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4shr"(enc_int4, enc_int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8and"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8or"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8xor"(enc_int8, enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8not"(enc_int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8shl"(enc_int8, enc_int4) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8shr"(enc_int8, enc_int4) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_object_field"(enc_jsonb, enc_text) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_object_field_text"(enc_jsonb, enc_text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_array_element"(enc_jsonb, enc_int4) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_array_element_text"(enc_jsonb, enc_int4) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_contains"(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_contained"(enc_jsonb, enc_jsonb) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb_exists"(enc_jsonb, enc_text) RETURNS boolean
    AS 'MODULE_PATHNAME', 'strongroom_test' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8"(enc_int4) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8"(enc_int4) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric"(enc_int4) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4"(enc_int8) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8"(enc_int8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric"(enc_int8) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4"(enc_float8) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8"(enc_float8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric"(enc_float8) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4"(enc_numeric) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8"(enc_numeric) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8"(enc_numeric) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric"(enc_numeric, integer) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4"(enc_bool) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "bool"(enc_int4) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date"(enc_timestamp) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamp"(enc_date) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamptz"(enc_date) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamptz"(enc_timestamp) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "timestamp"(enc_timestamptz) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "date"(enc_timestamptz) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time"(enc_timestamp) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time"(enc_timestamptz) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "time"(enc_interval) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "interval"(enc_time) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_bool) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_int4) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_int8) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_float8) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_numeric) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_date) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_timestamp) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_timestamptz) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_uuid) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_time) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int4"(enc_text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "int8"(enc_text) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "numeric"(enc_text) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "float8"(enc_text) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "uuid"(enc_text) RETURNS enc_uuid
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_jsonb) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "jsonb"(enc_text) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;
CREATE FUNCTION "text"(enc_interval) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_compute' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED COST 10;

-- operators
CREATE OPERATOR + (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4pl", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4mi");
CREATE OPERATOR * (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4mul", COMMUTATOR = *);
CREATE OPERATOR / (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4div");
CREATE OPERATOR % (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4mod");
CREATE OPERATOR - (RIGHTARG = enc_int4, FUNCTION = "int4um");
CREATE OPERATOR + (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8pl", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8mi");
CREATE OPERATOR * (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8mul", COMMUTATOR = *);
CREATE OPERATOR / (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8div");
CREATE OPERATOR % (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8mod");
CREATE OPERATOR - (RIGHTARG = enc_int8, FUNCTION = "int8um");
CREATE OPERATOR + (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = "float8pl", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = "float8mi");
CREATE OPERATOR * (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = "float8mul", COMMUTATOR = *);
CREATE OPERATOR / (LEFTARG = enc_float8, RIGHTARG = enc_float8, FUNCTION = "float8div");
CREATE OPERATOR - (RIGHTARG = enc_float8, FUNCTION = "float8um");
CREATE OPERATOR + (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = "numeric_add", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = "numeric_sub");
CREATE OPERATOR * (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = "numeric_mul", COMMUTATOR = *);
CREATE OPERATOR / (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = "numeric_div");
CREATE OPERATOR % (LEFTARG = enc_numeric, RIGHTARG = enc_numeric, FUNCTION = "numeric_mod");
CREATE OPERATOR - (RIGHTARG = enc_numeric, FUNCTION = "numeric_uminus");
CREATE OPERATOR || (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "textcat");
CREATE OPERATOR ~~ (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "textlike", NEGATOR = !~~, RESTRICT = likesel, JOIN = likejoinsel);
CREATE OPERATOR !~~ (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "textnlike", NEGATOR = ~~, RESTRICT = nlikesel, JOIN = nlikejoinsel);
CREATE OPERATOR ~~* (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "texticlike", NEGATOR = !~~*, RESTRICT = iclikesel, JOIN = iclikejoinsel);
CREATE OPERATOR !~~* (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "texticnlike", NEGATOR = ~~*, RESTRICT = icnlikesel, JOIN = icnlikejoinsel);
CREATE OPERATOR ~ (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "textregexeq", NEGATOR = !~, RESTRICT = regexeqsel, JOIN = regexeqjoinsel);
CREATE OPERATOR !~ (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "textregexne", NEGATOR = ~, RESTRICT = regexnesel, JOIN = regexnejoinsel);
CREATE OPERATOR ~* (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "texticregexeq", NEGATOR = !~*, RESTRICT = icregexeqsel, JOIN = icregexeqjoinsel);
CREATE OPERATOR !~* (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "texticregexne", NEGATOR = ~*, RESTRICT = icregexnesel, JOIN = icregexnejoinsel);
CREATE OPERATOR ^@ (LEFTARG = enc_text, RIGHTARG = enc_text, FUNCTION = "starts_with", RESTRICT = prefixsel, JOIN = prefixjoinsel);
CREATE OPERATOR || (LEFTARG = enc_bytea, RIGHTARG = enc_bytea, FUNCTION = "byteacat");
CREATE OPERATOR + (LEFTARG = enc_date, RIGHTARG = enc_int4, FUNCTION = "date_pli", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_date, RIGHTARG = enc_int4, FUNCTION = "date_mii");
CREATE OPERATOR - (LEFTARG = enc_date, RIGHTARG = enc_date, FUNCTION = "date_mi");
CREATE OPERATOR + (LEFTARG = enc_date, RIGHTARG = enc_interval, FUNCTION = "date_pl_interval", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_date, RIGHTARG = enc_interval, FUNCTION = "date_mi_interval");
CREATE OPERATOR + (LEFTARG = enc_timestamp, RIGHTARG = enc_interval, FUNCTION = "timestamp_pl_interval", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_timestamp, RIGHTARG = enc_interval, FUNCTION = "timestamp_mi_interval");
CREATE OPERATOR - (LEFTARG = enc_timestamp, RIGHTARG = enc_timestamp, FUNCTION = "timestamp_mi");
CREATE OPERATOR + (LEFTARG = enc_timestamptz, RIGHTARG = enc_interval, FUNCTION = "timestamptz_pl_interval", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_timestamptz, RIGHTARG = enc_interval, FUNCTION = "timestamptz_mi_interval");
CREATE OPERATOR - (LEFTARG = enc_timestamptz, RIGHTARG = enc_timestamptz, FUNCTION = "timestamptz_mi");
CREATE OPERATOR + (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = "interval_pl", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_interval, RIGHTARG = enc_interval, FUNCTION = "interval_mi");
CREATE OPERATOR - (RIGHTARG = enc_interval, FUNCTION = "interval_um");
CREATE OPERATOR * (LEFTARG = enc_interval, RIGHTARG = enc_float8, FUNCTION = "interval_mul", COMMUTATOR = *);
CREATE OPERATOR / (LEFTARG = enc_interval, RIGHTARG = enc_float8, FUNCTION = "interval_div");
CREATE OPERATOR + (LEFTARG = enc_int4, RIGHTARG = enc_date, FUNCTION = "integer_pl_date", COMMUTATOR = +);
CREATE OPERATOR + (LEFTARG = enc_interval, RIGHTARG = enc_date, FUNCTION = "interval_pl_date", COMMUTATOR = +);
CREATE OPERATOR + (LEFTARG = enc_interval, RIGHTARG = enc_timestamp, FUNCTION = "interval_pl_timestamp", COMMUTATOR = +);
CREATE OPERATOR + (LEFTARG = enc_interval, RIGHTARG = enc_timestamptz, FUNCTION = "interval_pl_timestamptz", COMMUTATOR = +);
CREATE OPERATOR * (LEFTARG = enc_float8, RIGHTARG = enc_interval, FUNCTION = "mul_d_interval", COMMUTATOR = *);
CREATE OPERATOR + (LEFTARG = enc_time, RIGHTARG = enc_interval, FUNCTION = "time_pl_interval", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_time, RIGHTARG = enc_interval, FUNCTION = "time_mi_interval");
CREATE OPERATOR + (LEFTARG = enc_interval, RIGHTARG = enc_time, FUNCTION = "interval_pl_time", COMMUTATOR = +);
CREATE OPERATOR - (LEFTARG = enc_time, RIGHTARG = enc_time, FUNCTION = "time_mi_time");
CREATE OPERATOR + (LEFTARG = enc_date, RIGHTARG = enc_time, FUNCTION = "datetime_pl", COMMUTATOR = +);
CREATE OPERATOR + (LEFTARG = enc_time, RIGHTARG = enc_date, FUNCTION = "timedate_pl", COMMUTATOR = +);
CREATE OPERATOR & (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4and", COMMUTATOR = &);
CREATE OPERATOR | (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4or", COMMUTATOR = |);
CREATE OPERATOR # (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4xor", COMMUTATOR = #);
CREATE OPERATOR ~ (RIGHTARG = enc_int4, FUNCTION = "int4not");
CREATE OPERATOR << (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4shl");
CREATE OPERATOR >> (LEFTARG = enc_int4, RIGHTARG = enc_int4, FUNCTION = "int4shr");
CREATE OPERATOR & (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8and", COMMUTATOR = &);
CREATE OPERATOR | (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8or", COMMUTATOR = |);
CREATE OPERATOR # (LEFTARG = enc_int8, RIGHTARG = enc_int8, FUNCTION = "int8xor", COMMUTATOR = #);
CREATE OPERATOR ~ (RIGHTARG = enc_int8, FUNCTION = "int8not");
CREATE OPERATOR << (LEFTARG = enc_int8, RIGHTARG = enc_int4, FUNCTION = "int8shl");
CREATE OPERATOR >> (LEFTARG = enc_int8, RIGHTARG = enc_int4, FUNCTION = "int8shr");
CREATE OPERATOR -> (LEFTARG = enc_jsonb, RIGHTARG = enc_text, FUNCTION = "jsonb_object_field");
CREATE OPERATOR ->> (LEFTARG = enc_jsonb, RIGHTARG = enc_text, FUNCTION = "jsonb_object_field_text");
CREATE OPERATOR -> (LEFTARG = enc_jsonb, RIGHTARG = enc_int4, FUNCTION = "jsonb_array_element");
CREATE OPERATOR ->> (LEFTARG = enc_jsonb, RIGHTARG = enc_int4, FUNCTION = "jsonb_array_element_text");
CREATE OPERATOR @> (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = "jsonb_contains", COMMUTATOR = <@, RESTRICT = matchingsel, JOIN = matchingjoinsel);
CREATE OPERATOR <@ (LEFTARG = enc_jsonb, RIGHTARG = enc_jsonb, FUNCTION = "jsonb_contained", COMMUTATOR = @>, RESTRICT = matchingsel, JOIN = matchingjoinsel);
CREATE OPERATOR ? (LEFTARG = enc_jsonb, RIGHTARG = enc_text, FUNCTION = "jsonb_exists", RESTRICT = matchingsel, JOIN = matchingjoinsel);

-- casts
CREATE CAST (enc_int4 AS enc_int8) WITH FUNCTION "int8"(enc_int4) AS IMPLICIT;
CREATE CAST (enc_int4 AS enc_float8) WITH FUNCTION "float8"(enc_int4) AS IMPLICIT;
CREATE CAST (enc_int4 AS enc_numeric) WITH FUNCTION "numeric"(enc_int4) AS IMPLICIT;
CREATE CAST (enc_int8 AS enc_int4) WITH FUNCTION "int4"(enc_int8) AS ASSIGNMENT;
CREATE CAST (enc_int8 AS enc_float8) WITH FUNCTION "float8"(enc_int8) AS IMPLICIT;
CREATE CAST (enc_int8 AS enc_numeric) WITH FUNCTION "numeric"(enc_int8) AS IMPLICIT;
CREATE CAST (enc_float8 AS enc_int4) WITH FUNCTION "int4"(enc_float8) AS ASSIGNMENT;
CREATE CAST (enc_float8 AS enc_int8) WITH FUNCTION "int8"(enc_float8) AS ASSIGNMENT;
CREATE CAST (enc_float8 AS enc_numeric) WITH FUNCTION "numeric"(enc_float8) AS ASSIGNMENT;
CREATE CAST (enc_numeric AS enc_int4) WITH FUNCTION "int4"(enc_numeric) AS ASSIGNMENT;
CREATE CAST (enc_numeric AS enc_int8) WITH FUNCTION "int8"(enc_numeric) AS ASSIGNMENT;
CREATE CAST (enc_numeric AS enc_float8) WITH FUNCTION "float8"(enc_numeric) AS IMPLICIT;
CREATE CAST (enc_numeric AS enc_numeric) WITH FUNCTION "numeric"(enc_numeric, integer) AS IMPLICIT;
CREATE CAST (enc_bool AS enc_int4) WITH FUNCTION "int4"(enc_bool);
CREATE CAST (enc_int4 AS enc_bool) WITH FUNCTION "bool"(enc_int4);
CREATE CAST (enc_timestamp AS enc_date) WITH FUNCTION "date"(enc_timestamp) AS ASSIGNMENT;
CREATE CAST (enc_date AS enc_timestamp) WITH FUNCTION "timestamp"(enc_date) AS IMPLICIT;
CREATE CAST (enc_date AS enc_timestamptz) WITH FUNCTION "timestamptz"(enc_date) AS IMPLICIT;
CREATE CAST (enc_timestamp AS enc_timestamptz) WITH FUNCTION "timestamptz"(enc_timestamp) AS IMPLICIT;
CREATE CAST (enc_timestamptz AS enc_timestamp) WITH FUNCTION "timestamp"(enc_timestamptz) AS ASSIGNMENT;
CREATE CAST (enc_timestamptz AS enc_date) WITH FUNCTION "date"(enc_timestamptz) AS ASSIGNMENT;
CREATE CAST (enc_timestamp AS enc_time) WITH FUNCTION "time"(enc_timestamp) AS ASSIGNMENT;
CREATE CAST (enc_timestamptz AS enc_time) WITH FUNCTION "time"(enc_timestamptz) AS ASSIGNMENT;
CREATE CAST (enc_interval AS enc_time) WITH FUNCTION "time"(enc_interval) AS ASSIGNMENT;
CREATE CAST (enc_time AS enc_interval) WITH FUNCTION "interval"(enc_time) AS IMPLICIT;
CREATE CAST (enc_bool AS enc_text) WITH FUNCTION "text"(enc_bool) AS ASSIGNMENT;
CREATE CAST (enc_int4 AS enc_text) WITH FUNCTION "text"(enc_int4) AS ASSIGNMENT;
CREATE CAST (enc_int8 AS enc_text) WITH FUNCTION "text"(enc_int8) AS ASSIGNMENT;
CREATE CAST (enc_float8 AS enc_text) WITH FUNCTION "text"(enc_float8) AS ASSIGNMENT;
CREATE CAST (enc_numeric AS enc_text) WITH FUNCTION "text"(enc_numeric) AS ASSIGNMENT;
CREATE CAST (enc_date AS enc_text) WITH FUNCTION "text"(enc_date) AS ASSIGNMENT;
CREATE CAST (enc_timestamp AS enc_text) WITH FUNCTION "text"(enc_timestamp) AS ASSIGNMENT;
CREATE CAST (enc_timestamptz AS enc_text) WITH FUNCTION "text"(enc_timestamptz) AS ASSIGNMENT;
CREATE CAST (enc_uuid AS enc_text) WITH FUNCTION "text"(enc_uuid) AS ASSIGNMENT;
CREATE CAST (enc_time AS enc_text) WITH FUNCTION "text"(enc_time) AS ASSIGNMENT;
CREATE CAST (enc_text AS enc_int4) WITH FUNCTION "int4"(enc_text);
CREATE CAST (enc_text AS enc_int8) WITH FUNCTION "int8"(enc_text);
CREATE CAST (enc_text AS enc_numeric) WITH FUNCTION "numeric"(enc_text);
CREATE CAST (enc_text AS enc_float8) WITH FUNCTION "float8"(enc_text);
CREATE CAST (enc_text AS enc_uuid) WITH FUNCTION "uuid"(enc_text);
CREATE CAST (enc_jsonb AS enc_text) WITH FUNCTION "text"(enc_jsonb) AS ASSIGNMENT;
CREATE CAST (enc_text AS enc_jsonb) WITH FUNCTION "jsonb"(enc_text);
CREATE CAST (enc_interval AS enc_text) WITH FUNCTION "text"(enc_interval) AS ASSIGNMENT;

-- aggregates
CREATE FUNCTION enc_bool_final(bigint) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int4_final(bigint) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_int8_final(bigint) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_float8_final(bigint) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_numeric_final(bigint) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_text_final(bigint) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_date_final(bigint) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamp_final(bigint) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_timestamptz_final(bigint) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_interval_final(bigint) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION enc_time_final(bigint) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_final' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION sum_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE sum(enc_int4) (SFUNC = sum_step, STYPE = bigint, FINALFUNC = enc_int8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION sum_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE sum(enc_int8) (SFUNC = sum_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION sum_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE sum(enc_float8) (SFUNC = sum_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION sum_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE sum(enc_numeric) (SFUNC = sum_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION sum_step(bigint, enc_interval) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE sum(enc_interval) (SFUNC = sum_step, STYPE = bigint, FINALFUNC = enc_interval_final, PARALLEL = RESTRICTED);
CREATE FUNCTION avg_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE avg(enc_int4) (SFUNC = avg_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION avg_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE avg(enc_int8) (SFUNC = avg_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION avg_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE avg(enc_float8) (SFUNC = avg_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION avg_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE avg(enc_numeric) (SFUNC = avg_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION avg_step(bigint, enc_interval) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE avg(enc_interval) (SFUNC = avg_step, STYPE = bigint, FINALFUNC = enc_interval_final, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_int4) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_int4_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_int8) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_int8_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_float8) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_float8_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_numeric) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_numeric_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_text) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_text_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_date) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_date) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_date_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_timestamp) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_timestamp) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_timestamp_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_timestamptz) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_timestamptz_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_interval) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_interval) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_interval_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION min_step(bigint, enc_time) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE min(enc_time) (SFUNC = min_step, STYPE = bigint, FINALFUNC = enc_time_final, SORTOP = <, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_int4) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_int4_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_int8) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_int8_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_float8) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_float8_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_numeric) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_numeric_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_text) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_text_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_date) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_date) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_date_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_timestamp) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_timestamp) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_timestamp_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_timestamptz) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_timestamptz_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_interval) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_interval) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_interval_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION max_step(bigint, enc_time) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE max(enc_time) (SFUNC = max_step, STYPE = bigint, FINALFUNC = enc_time_final, SORTOP = >, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev(enc_int4) (SFUNC = stddev_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev(enc_int8) (SFUNC = stddev_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev(enc_float8) (SFUNC = stddev_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev(enc_numeric) (SFUNC = stddev_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_samp_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_samp(enc_int4) (SFUNC = stddev_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_samp_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_samp(enc_int8) (SFUNC = stddev_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_samp_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_samp(enc_float8) (SFUNC = stddev_samp_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_samp_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_samp(enc_numeric) (SFUNC = stddev_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_pop_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_pop(enc_int4) (SFUNC = stddev_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_pop_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_pop(enc_int8) (SFUNC = stddev_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_pop_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_pop(enc_float8) (SFUNC = stddev_pop_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION stddev_pop_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE stddev_pop(enc_numeric) (SFUNC = stddev_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION variance_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE variance(enc_int4) (SFUNC = variance_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION variance_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE variance(enc_int8) (SFUNC = variance_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION variance_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE variance(enc_float8) (SFUNC = variance_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION variance_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE variance(enc_numeric) (SFUNC = variance_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_samp_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_samp(enc_int4) (SFUNC = var_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_samp_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_samp(enc_int8) (SFUNC = var_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_samp_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_samp(enc_float8) (SFUNC = var_samp_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_samp_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_samp(enc_numeric) (SFUNC = var_samp_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_pop_step(bigint, enc_int4) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_pop(enc_int4) (SFUNC = var_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_pop_step(bigint, enc_int8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_pop(enc_int8) (SFUNC = var_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_pop_step(bigint, enc_float8) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_pop(enc_float8) (SFUNC = var_pop_step, STYPE = bigint, FINALFUNC = enc_float8_final, PARALLEL = RESTRICTED);
CREATE FUNCTION var_pop_step(bigint, enc_numeric) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE var_pop(enc_numeric) (SFUNC = var_pop_step, STYPE = bigint, FINALFUNC = enc_numeric_final, PARALLEL = RESTRICTED);
CREATE FUNCTION string_agg_step(bigint, enc_text, enc_text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE string_agg(enc_text, enc_text) (SFUNC = string_agg_step, STYPE = bigint, FINALFUNC = enc_text_final, PARALLEL = RESTRICTED);
CREATE FUNCTION bool_and_step(bigint, enc_bool) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE bool_and(enc_bool) (SFUNC = bool_and_step, STYPE = bigint, FINALFUNC = enc_bool_final, PARALLEL = RESTRICTED);
CREATE FUNCTION every_step(bigint, enc_bool) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE every(enc_bool) (SFUNC = every_step, STYPE = bigint, FINALFUNC = enc_bool_final, PARALLEL = RESTRICTED);
CREATE FUNCTION bool_or_step(bigint, enc_bool) RETURNS bigint
    AS 'MODULE_PATHNAME', 'strongroom_step' LANGUAGE C STABLE PARALLEL RESTRICTED;
CREATE AGGREGATE bool_or(enc_bool) (SFUNC = bool_or_step, STYPE = bigint, FINALFUNC = enc_bool_final, PARALLEL = RESTRICTED);

-- the access method
CREATE FUNCTION strongroom_am_handler(internal) RETURNS table_am_handler
    AS 'MODULE_PATHNAME', 'strongroom_am_handler' LANGUAGE C STRICT;
CREATE ACCESS METHOD strongroom TYPE TABLE HANDLER strongroom_am_handler;
COMMENT ON ACCESS METHOD strongroom IS 'heap, with promotion of confidential values';

-- administration
CREATE SCHEMA strongroom_columns;
GRANT USAGE ON SCHEMA strongroom_columns TO PUBLIC;
CREATE FUNCTION strongroom_columns.status() RETURNS json
    AS 'MODULE_PATHNAME', 'strongroom_status' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
REVOKE ALL ON FUNCTION strongroom_columns.status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strongroom_columns.status() TO pg_monitor;
CREATE FUNCTION strongroom_columns.sweep(regclass) RETURNS json
    AS 'MODULE_PATHNAME', 'strongroom_sweep' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION strongroom_columns.attest(bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_attest' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.conversion() RETURNS trigger
    AS 'MODULE_PATHNAME', 'strongroom_conversion' LANGUAGE C;
CREATE FUNCTION strongroom_columns.message(bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_message' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

-- values in clear, for a ticket with the right to declassify
CREATE FUNCTION strongroom_columns.declassify(enc_bool) RETURNS bool
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_bool AS bool) WITH FUNCTION strongroom_columns.declassify(enc_bool);
CREATE FUNCTION strongroom_columns.classify(bool) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (bool AS enc_bool) WITH FUNCTION strongroom_columns.classify(bool);
CREATE FUNCTION strongroom_columns.declassify(enc_int4) RETURNS int4
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_int4 AS int4) WITH FUNCTION strongroom_columns.declassify(enc_int4);
CREATE FUNCTION strongroom_columns.classify(int4) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (int4 AS enc_int4) WITH FUNCTION strongroom_columns.classify(int4);
CREATE FUNCTION strongroom_columns.declassify(enc_int8) RETURNS int8
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_int8 AS int8) WITH FUNCTION strongroom_columns.declassify(enc_int8);
CREATE FUNCTION strongroom_columns.classify(int8) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (int8 AS enc_int8) WITH FUNCTION strongroom_columns.classify(int8);
CREATE FUNCTION strongroom_columns.declassify(enc_float8) RETURNS float8
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_float8 AS float8) WITH FUNCTION strongroom_columns.declassify(enc_float8);
CREATE FUNCTION strongroom_columns.classify(float8) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (float8 AS enc_float8) WITH FUNCTION strongroom_columns.classify(float8);
CREATE FUNCTION strongroom_columns.declassify(enc_numeric) RETURNS numeric
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_numeric AS numeric) WITH FUNCTION strongroom_columns.declassify(enc_numeric);
CREATE FUNCTION strongroom_columns.classify(numeric) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (numeric AS enc_numeric) WITH FUNCTION strongroom_columns.classify(numeric);
CREATE FUNCTION strongroom_columns.declassify(enc_text) RETURNS text
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_text AS text) WITH FUNCTION strongroom_columns.declassify(enc_text);
CREATE FUNCTION strongroom_columns.classify(text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (text AS enc_text) WITH FUNCTION strongroom_columns.classify(text);
CREATE FUNCTION strongroom_columns.declassify(enc_bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_bytea AS bytea) WITH FUNCTION strongroom_columns.declassify(enc_bytea);
CREATE FUNCTION strongroom_columns.classify(bytea) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (bytea AS enc_bytea) WITH FUNCTION strongroom_columns.classify(bytea);
CREATE FUNCTION strongroom_columns.declassify(enc_date) RETURNS date
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_date AS date) WITH FUNCTION strongroom_columns.declassify(enc_date);
CREATE FUNCTION strongroom_columns.classify(date) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (date AS enc_date) WITH FUNCTION strongroom_columns.classify(date);
CREATE FUNCTION strongroom_columns.declassify(enc_timestamp) RETURNS timestamp
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_timestamp AS timestamp) WITH FUNCTION strongroom_columns.declassify(enc_timestamp);
CREATE FUNCTION strongroom_columns.classify(timestamp) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (timestamp AS enc_timestamp) WITH FUNCTION strongroom_columns.classify(timestamp);
CREATE FUNCTION strongroom_columns.declassify(enc_timestamptz) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_timestamptz AS timestamptz) WITH FUNCTION strongroom_columns.declassify(enc_timestamptz);
CREATE FUNCTION strongroom_columns.classify(timestamptz) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (timestamptz AS enc_timestamptz) WITH FUNCTION strongroom_columns.classify(timestamptz);
CREATE FUNCTION strongroom_columns.declassify(enc_interval) RETURNS interval
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_interval AS interval) WITH FUNCTION strongroom_columns.declassify(enc_interval);
CREATE FUNCTION strongroom_columns.classify(interval) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (interval AS enc_interval) WITH FUNCTION strongroom_columns.classify(interval);
CREATE FUNCTION strongroom_columns.declassify(enc_uuid) RETURNS uuid
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_uuid AS uuid) WITH FUNCTION strongroom_columns.declassify(enc_uuid);
CREATE FUNCTION strongroom_columns.classify(uuid) RETURNS enc_uuid
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (uuid AS enc_uuid) WITH FUNCTION strongroom_columns.classify(uuid);
CREATE FUNCTION strongroom_columns.declassify(enc_time) RETURNS time
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_time AS time) WITH FUNCTION strongroom_columns.declassify(enc_time);
CREATE FUNCTION strongroom_columns.classify(time) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (time AS enc_time) WITH FUNCTION strongroom_columns.classify(time);
CREATE FUNCTION strongroom_columns.declassify(enc_jsonb) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'strongroom_declassify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (enc_jsonb AS jsonb) WITH FUNCTION strongroom_columns.declassify(enc_jsonb);
CREATE FUNCTION strongroom_columns.classify(jsonb) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_classify' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
CREATE CAST (jsonb AS enc_jsonb) WITH FUNCTION strongroom_columns.classify(jsonb);

-- constants of definitions
CREATE FUNCTION strongroom_columns.enc_bool_constant(text) RETURNS enc_bool
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_int4_constant(text) RETURNS enc_int4
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_int8_constant(text) RETURNS enc_int8
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_float8_constant(text) RETURNS enc_float8
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_numeric_constant(text) RETURNS enc_numeric
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_text_constant(text) RETURNS enc_text
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_bytea_constant(text) RETURNS enc_bytea
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_date_constant(text) RETURNS enc_date
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_timestamp_constant(text) RETURNS enc_timestamp
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_timestamptz_constant(text) RETURNS enc_timestamptz
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_interval_constant(text) RETURNS enc_interval
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_uuid_constant(text) RETURNS enc_uuid
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_time_constant(text) RETURNS enc_time
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
CREATE FUNCTION strongroom_columns.enc_jsonb_constant(text) RETURNS enc_jsonb
    AS 'MODULE_PATHNAME', 'strongroom_constant' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
