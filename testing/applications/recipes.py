"""Tries what docs/reference/columns-applications.md has for Django and SQLAlchemy, as it stands there.

Run with the socket's directory in TO and a database "recipes" whose tables have the access method
strongroom. Fails with the first difference.
"""

import datetime
import decimal
import os
import pathlib
import textwrap
import uuid

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/reference/columns-applications.md"


def recipe(name):
    """Return the code below the paragraph that begins with the name."""
    below = DOCUMENT.read_text().split(f"**{name}:**")[1]
    lines = below.split("\n\n    ", 1)[1].split("\n")
    code = ["    " + lines[0]]
    for line in lines[1:]:
        if line and not line.startswith("    "):
            break
        code.append(line)
    return textwrap.dedent("\n".join(code))


def equal(found, expected):
    assert found == expected, f"{found!r}, not {expected!r}"


def refused(work, part):
    """Do the work, which has to fail with this part in its message."""
    try:
        work()
    except Exception as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"nothing was refused with {part!r}")


def try_sqlalchemy():
    names = {}
    exec(recipe("SQLAlchemy"), names)
    import sqlalchemy as sa
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from sqlalchemy import orm

    class Base(orm.DeclarativeBase):
        pass

    class Person(Base):
        __tablename__ = "person"
        id = orm.mapped_column(sa.Integer, primary_key=True)
        name = orm.mapped_column(names["EncText"]("ordered"), index=True)
        pay = orm.mapped_column(names["EncNumeric"](), nullable=True)
        born = orm.mapped_column(names["EncDate"](), nullable=True)
        active = orm.mapped_column(names["EncBoolean"](), default=True)
        starts = orm.mapped_column(names["EncTime"](), nullable=True)
        notes = orm.mapped_column(names["EncJsonb"](), nullable=True)
        badge = orm.mapped_column(names["EncUuid"]("ordered"), unique=True, default=uuid.uuid4)

    engine = sa.create_engine("postgresql+psycopg://postgres@/recipes?host=" + os.environ["TO"])
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        ada = Person(name="Ada", pay=decimal.Decimal("10.5"), born=datetime.date(1815, 12, 10))
        ada.starts, ada.notes = datetime.time(8, 30), {"tags": ["a", None], "pay": 10.5}
        session.add_all([ada, Person(name="Alan", pay=11, active=False), Person(name="Grace")])
        session.commit()
        active = sa.select(Person.name).where(Person.active).order_by(Person.name)
        equal(session.scalars(active).all(), ["Ada", "Grace"])
        totals = session.execute(sa.select(sa.func.sum(Person.pay), sa.func.max(Person.born))).one()
        equal(tuple(totals), (decimal.Decimal("21.5"), datetime.date(1815, 12, 10)))
        found = sa.select(Person.name).where(Person.name.in_(["Ada", "Grace"]), ~Person.name.ilike("g%"))
        equal(session.scalars(found).all(), ["Ada"])
        found = sa.select(Person.name).where(Person.name.regexp_match("^A.a"))
        equal(session.scalars(found).all(), ["Ada", "Alan"])
        found = sa.select(Person.starts).where(Person.starts.between(datetime.time(8), datetime.time(9)))
        equal(session.scalars(found).all(), [datetime.time(8, 30)])
        found = sa.select(Person.notes).where(Person.notes.contains({"tags": ["a"]}))
        equal(session.scalars(found).all(), [{"tags": ["a", None], "pay": 10.5}])
        badge = ada.badge
        equal(type(badge), uuid.UUID)
        found = sa.select(Person.name).where(Person.badge.in_([badge, uuid.uuid4()]))
        equal(session.scalars(found).all(), ["Ada"])
        session.execute(sa.update(Person).where(Person.name == "Ada").values(pay=Person.pay + 1))
        session.commit()
        equal(session.scalar(sa.select(Person.pay).where(Person.name == "Ada")), decimal.Decimal("11.5"))
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        equal(compare_metadata(context, Base.metadata), [])
        op = Operations(context)
        op.add_column("person", sa.Column("city", names["EncText"](), server_default="Paris", nullable=False))
        op.add_column("person", sa.Column("age", names["EncInteger"]()))
        op.create_check_constraint("adult", "person", "age >= 18")
        op.alter_column("person", "city", server_default=None)
        op.alter_column("person", "age", new_column_name="years")
        op.add_column("person", sa.Column("grade", names["EncInteger"]("ordered"), server_default="3", nullable=False))
        op.add_column("person", sa.Column("term", names["EncInterval"]()))
        connection.execute(sa.text("INSERT INTO person (name, city, term) VALUES ('Edsger', 'Austin', '1 mon')"))
    with engine.begin() as connection:
        cities = connection.execute(sa.text("SELECT city FROM person WHERE years IS NULL ORDER BY city")).scalars()
        equal(cities.all(), ["Austin"] + ["Paris"] * 3)
        named = connection.execute(sa.text("SELECT name, grade FROM person WHERE name > 'Al' ORDER BY name"))
        equal([tuple(row) for row in named], [("Alan", 3), ("Edsger", 3), ("Grace", 3)])
        term = sa.text("SELECT max(term) FROM person WHERE term < '40 days'").columns(sa.column("max", names["EncInterval"]()))
        equal(connection.execute(term).scalar(), datetime.timedelta(days=30))

    def run(*statements):
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    key = str(uuid.uuid4())
    refused(lambda: run(f"INSERT INTO person VALUES (9, 'x', 1, NULL, true, NULL, NULL, '{key}', 'y', 17)"), "adult")
    convert = ("CREATE TABLE plain (id int, c text)", "ALTER TABLE plain ALTER c TYPE enc_text")
    refused(lambda: run(*convert), "strongroom columns convert")


def try_django():
    import django
    from django.conf import settings
    from django.db import connection, migrations, models
    from django.db.models.functions import TruncYear

    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "recipes", "USER": "postgres", "HOST": os.environ["TO"]}
    settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[], USE_TZ=True, TIME_ZONE="UTC")
    django.setup()
    names = {}
    exec(recipe("Django"), names)

    def field(base):
        return type("Confidential" + base.__name__, (names["Confidential"], base), {})

    Text, Number, Date = field(models.TextField), field(models.DecimalField), field(models.DateField)
    Flag, Moment, Key = field(models.BooleanField), field(models.DateTimeField), field(models.UUIDField)
    Clock, Document, Span = field(models.TimeField), field(models.JSONField), field(models.DurationField)
    first = [
        migrations.CreateModel(
            "Staff",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("name", Text(db_index=True)),
                ("pay", Number(max_digits=10, decimal_places=2, null=True)),
                ("born", Date(null=True)),
            ],
        )
    ]
    second = [
        migrations.AddField("Staff", "active", Flag(default=True)),
        migrations.AddField("Staff", "seen", Moment(auto_now=True, null=True)),
        migrations.AddField("Staff", "mail", Text(unique=True, null=True)),
        migrations.AddField("Staff", "badge", Key(unique=True, null=True)),
        migrations.AddField("Staff", "starts", Clock(null=True)),
        migrations.AddField("Staff", "notes", Document(null=True)),
        migrations.AddField("Staff", "shift", Span(null=True)),
    ]
    third = [
        migrations.RenameField("Staff", "born", "birth"),
        migrations.AddField("Staff", "kind", Text(db_index=True, default="none")),
    ]
    from django.db.migrations.state import ProjectState

    state = ProjectState()

    def migrate(operations):
        nonlocal state
        with connection.schema_editor() as editor:
            for operation in operations:
                before = state.clone()
                operation.state_forwards("staff", state)
                operation.database_forwards("staff", editor, before, state)

    migrate(first)
    Staff = state.apps.get_model("staff", "Staff")
    Staff.objects.create(name="Ada", pay="10.50", born=datetime.date(1815, 12, 10))
    migrate(second)
    Staff = state.apps.get_model("staff", "Staff")
    rows = [Staff(name="Alan", pay=11, born=datetime.date(1912, 6, 23), active=False), Staff(name="Grace")]
    Staff.objects.bulk_create(rows)
    equal(list(Staff.objects.filter(active=True).order_by("name").values_list("name", flat=True)), ["Ada", "Grace"])
    equal(Staff.objects.aggregate(total=models.Sum("pay"))["total"], decimal.Decimal("21.50"))
    equal(Staff.objects.filter(born__year=1815, name__iregex="^a").count(), 1)
    # Whatever the time of the day, and the day itself, is by now.
    days = {row.seen.date() for row in Staff.objects.all()}
    equal(sum(Staff.objects.filter(seen__date=day).count() for day in days), 3)
    year = Staff.objects.annotate(year=TruncYear("born")).order_by("born").values_list("year", flat=True)
    equal(year[0], datetime.date(1815, 1, 1))
    Staff.objects.filter(name="Ada").update(pay=models.F("pay") + 1)
    equal(Staff.objects.get(name="Ada").pay, decimal.Decimal("11.50"))
    badge = uuid.uuid4()
    Staff.objects.filter(name="Ada").update(badge=badge, starts=datetime.time(8, 30))
    equal(Staff.objects.get(badge=str(badge)).badge, badge)
    equal(Staff.objects.get(starts__hour=8, starts__lt=datetime.time(9)).starts, datetime.time(8, 30))
    notes = {"tags": ["a", {"b": None}], "pay": 10.5, "note": "it's \u00e9"}
    Staff.objects.filter(name="Ada").update(notes=notes)
    equal(Staff.objects.get(notes=notes).notes, notes)
    for condition in [{"notes__pay": 10.5}, {"notes__has_key": "tags"}, {"notes__contains": {"tags": ["a"]}}]:
        equal([who.name for who in Staff.objects.filter(name="Ada", **condition)], ["Ada"])
    equal(Staff.objects.filter(notes__isnull=True).exists(), True)
    equal([who.name for who in Staff.objects.filter(badge__in=[badge, uuid.uuid4()])], ["Ada"])
    hours = datetime.timedelta(hours=7, minutes=30)
    Staff.objects.filter(name="Ada").update(shift=hours)
    ends = Staff.objects.annotate(ends=models.F("seen") + models.F("shift")).filter(shift__gt=hours / 2)
    equal([who.ends - who.seen for who in ends], [hours])
    equal(Staff.objects.aggregate(total=models.Sum("shift"))["total"], hours)
    # An opaque column has another name, and an ordered one a default.
    migrate(third)
    Staff = state.apps.get_model("staff", "Staff")
    Staff.objects.create(name="Edsger", birth=datetime.date(1930, 5, 11), kind="new")
    kinds = Staff.objects.filter(birth__isnull=False).order_by("name").values_list("name", "kind")
    equal(list(kinds), [("Ada", "none"), ("Alan", "none"), ("Edsger", "new")])


try_sqlalchemy()
try_django()
print("Ran 2 tests in all")
