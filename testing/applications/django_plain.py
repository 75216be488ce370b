"""Settings of Django's test suite: databases on the socket that TO names, plain tables."""

import os

DATABASES = {
    name: {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": "postgres",
        "HOST": os.environ["TO"],
        "PORT": "5432",
        "TEST": {"NAME": "test_" + name},
    }
    for name in ("default", "other")
}
SECRET_KEY = "of the tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
