//! PostgreSQL's values outside PostgreSQL: binary and text forms, arithmetic, comparison, as the server has them.
