//! Texts of SQL that functions are called with as strings, `query_to_xml` for instance.
//!
//! Must not: refuse a text that is no SQL.

use super::catalog::Catalog;
use super::refusal::Refusal;
use super::resolver::Resolver;
use super::site::SiteKind;
use super::unread::{HINT, confidential_name};

/// The longest text, in bytes, that is read as SQL because a function is called with it. A text can
/// have another one in it, and so on: this bounds how many.
const SQL_ARGUMENT_MAX: usize = 16 << 10;

/// Checks the constants that functions are called with and that stay in clear: a function may
/// execute one that is SQL, as `query_to_xml` and `crosstab` do. Fails with SR-8103 for SQL whose
/// constants the proxy would seal, and that names something confidential.
pub(super) fn check_arguments(resolver: &mut Resolver<'_>) -> Result<(), Refusal> {
    for site in std::mem::take(&mut resolver.arguments) {
        let Some(site) = resolver.sites.get(site) else {
            continue;
        };
        let SiteKind::Constant(literal) = &site.kind else {
            continue;
        };
        if site.form.is_none()
            && has_confidential_constant(resolver.catalog, &literal.text)
            && let Some(name) = confidential_name(resolver.catalog, &literal.text)
        {
            let message = format!(
                "a function is called with a text of SQL that has constants and names {name}"
            );
            return Err(Refusal::statement(&message, HINT));
        }
    }
    Ok(())
}

/// Returns whether the text is SQL, and not one that may be sent as it is. Any other text, a format
/// or a path say, is none that PostgreSQL's parser accepts.
fn has_confidential_constant(catalog: &Catalog, text: &str) -> bool {
    if text.len() > SQL_ARGUMENT_MAX || !text.contains(char::is_whitespace) {
        return false;
    }
    match super::plan(text, catalog, 0) {
        Ok(plans) => plans
            .iter()
            .any(|plan| !plan.constants.is_empty() || !plan.kept.is_empty()),
        Err(_) => pg_query::parse(text, pg_query::ParserOptions::default()).is_ok(),
    }
}
