"""Django's backend for PostgreSQL, with confidential columns for texts, numbers, dates, times and JSON.

What stays plain: primary keys and what refers to them, the tables of Django's own applications,
and the types that have no confidential counterpart (network addresses). A column of an index or a
unique constraint is ordered; a boolean, a duration and a document never are.
"""

from django.db.backends.postgresql import base, schema

# Of each field by its internal type.
TYPES = {
    "BinaryField": "enc_bytea",
    "BooleanField": "enc_bool",
    "CharField": "enc_text",
    "DateField": "enc_date",
    "DateTimeField": "enc_timestamptz",
    "DecimalField": "enc_numeric",
    "DurationField": "enc_interval",
    "FileField": "enc_text",
    "FilePathField": "enc_text",
    "FloatField": "enc_float8",
    "IntegerField": "enc_int4",
    "JSONField": "enc_jsonb",
    "BigIntegerField": "enc_int8",
    "PositiveBigIntegerField": "enc_int8",
    "PositiveIntegerField": "enc_int4",
    "PositiveSmallIntegerField": "enc_int4",
    "SlugField": "enc_text",
    "SmallIntegerField": "enc_int4",
    "TextField": "enc_text",
    "TimeField": "enc_time",
    "UUIDField": "enc_uuid",
}

# Of these no column can be ordered.
OPAQUE = {"BooleanField", "DurationField", "JSONField"}

# Their tables are made by migrations that add indexes later.
PLAIN_APPLICATIONS = {
    "admin",
    "auth",
    "contenttypes",
    "flatpages",
    "migrations",
    "redirects",
    "sessions",
    "sites",
}


def is_indexed(field, model):
    """Return whether an index or a unique constraint has the column of the field."""
    options = model._meta
    groups = [list(group) for group in options.unique_together]
    groups += [[name.removeprefix("-") for name in index.fields] for index in options.indexes]
    groups += [list(of.fields) for of in options.constraints if hasattr(of, "fields")]
    return field["_unique"] or field["db_index"] or any(field["name"] in group for group in groups)


def confidential(internal_type):
    """Return a function from the attributes of a field to the type of its column."""
    plain = base.DatabaseWrapper.data_types[internal_type]

    def column_type(field):
        model = field.get("model")
        # What belongs to no model is the type of an expression, or of a reference to a key.
        if model is None or field["primary_key"] or model._meta.app_label in PLAIN_APPLICATIONS:
            return plain(field) if callable(plain) else plain % field
        modifiers = []
        if internal_type == "DecimalField" and field["max_digits"] is not None:
            modifiers += [str(field["max_digits"]), str(field["decimal_places"])]
        if internal_type not in OPAQUE and is_indexed(field, model):
            modifiers.append("ordered")
        return TYPES[internal_type] + (f"({', '.join(modifiers)})" if modifiers else "")

    return column_type


class SchemaEditor(schema.DatabaseSchemaEditor):
    sql_create_table = schema.DatabaseSchemaEditor.sql_create_table + " USING strongroom"


class DatabaseWrapper(base.DatabaseWrapper):
    SchemaEditorClass = SchemaEditor
    data_types = base.DatabaseWrapper.data_types | {name: confidential(name) for name in TYPES}
    # The check that a number is not negative has a constant, which a definition cannot hide.
    data_type_check_constraints = {}
