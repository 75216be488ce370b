"""Settings of Django's test suite: as django_plain, with confidential columns."""

from django_plain import *  # noqa: F403

for database in DATABASES.values():  # noqa: F405
    database["ENGINE"] = "confidential"
