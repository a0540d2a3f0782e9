"""Stored files by paths, URIs, folders and globs, on this machine and in other stores."""

from __future__ import annotations

import datetime
import os
import pickle
import random
import shutil
import sys
import types
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from cer_gpu.errors import EventsError
from cer_gpu.io.stores import path_in_store
from spark_glue.files import stores
from spark_glue.files.folders import bucket_of, folder_values
from spark_glue.files.opening import Opener, check_file
from spark_glue.files.stored_events import DirectReadError, File
from spark_glue.files.stored_formats import IPC, PARQUET, named_format
from spark_glue.files.stores import address_of, azure_arguments, gcs_arguments, hdfs_arguments, relevant, s3_arguments

TABLE = pa.table({"ts": [1, 2, 3], "type": ["A", "B", "A"]})
ODD = ["plain", "with blank", "100%", "a%20b", "k=v:1", "ümläut", "#hash?", "[1]", "{a,b}", "a*b"]


@pytest.fixture(autouse=True)
def no_open_stores():
    """File systems of one test are none of the next."""
    stores._cached_store.cache_clear()
    yield
    stores._cached_store.cache_clear()


def write(path, table=TABLE):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return str(path)


def as_spark_names(path):
    """The URI of a path, as the JVM escapes it."""
    return "file://" + quote(path, safe="/:@!$&'()*+,;=-._~")


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_odd_names_by_path_and_by_uri(tmp_path, name, ending):
    path = write(tmp_path / name / f"{name}{ending}")
    for each in (path, as_spark_names(path), as_spark_names(path).replace("file:///", "file:/")):
        opener = pickle.loads(pickle.dumps(Opener()))
        if ending == ".parquet":
            with opener.parquet(each) as file:
                assert file.read().equals(TABLE)
        else:
            with opener.ipc(each, ["type"]) as reader:
                assert reader.read_all().equals(TABLE.select(["type"]))
        assert opener.stat(each) == (os.stat(path).st_size, os.stat(path).st_mtime_ns)
        assert opener.format(each) is (PARQUET if ending == ".parquet" else IPC)
    assert Opener().files([path]) == [path]
    assert Opener().files([str(tmp_path / name)]) == [path]
    assert Opener().files([as_spark_names(str(tmp_path / name))]) == [as_spark_names(path)]


def test_folders_are_searched_without_what_spark_passes_over(tmp_path):
    taken = [
        "a.parquet",
        "b/c.PARQUET",
        "b/d.snappy.parquet",
        "_k=1/e.parq",
        "f.pq",
        "z.arrow",
        "z/y.feather",
        "z/z.ipc",
    ]
    for name in [*taken, "_g.parquet", ".h.parquet", "_temporary/i.parquet", ".j/k.parquet", "_SUCCESS", "l.csv", "m"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "folder.parquet" / "n.parquet").touch()
    expected = sorted(str(tmp_path / name) for name in [*taken, "folder.parquet/n.parquet"])
    assert Opener().files([tmp_path]) == expected
    assert Opener().files([f"{tmp_path}/"]) == expected
    assert Opener().files([as_spark_names(f"{tmp_path}/")]) == [as_spark_names(path) for path in expected]
    assert Opener().files([tmp_path / "m", tmp_path / "b"])[-1] == str(tmp_path / "m")  # a file is taken by any name


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.parquet", ["a1.parquet", "a2.parquet", "b1.parquet"]),
        ("a?.parquet", ["a1.parquet", "a2.parquet"]),
        ("[!a]1.parquet", ["b1.parquet"]),
        ("[a-b]1.*", ["a1.parquet", "b1.parquet"]),
        ("{a1,b1,c}.parquet", ["a1.parquet", "b1.parquet"]),
        ("day=*", ["day=1/x.parquet", "day=2/sub/y.parquet"]),
        ("day=*/*.parquet", ["day=1/x.parquet"]),
        ("**/*.parquet", ["a1.parquet", "a2.parquet", "b1.parquet", "day=1/x.parquet", "day=2/sub/y.parquet"]),
        ("day={1,2}/**", ["day=1/x.parquet", "day=2/sub/y.parquet"]),
    ],
)
def test_globs(tmp_path, glob, expected):
    for name in ["a1.parquet", "a2.parquet", "b1.parquet", "a1.txt", "day=1/x.parquet", "day=2/sub/y.parquet"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert Opener().files([tmp_path / glob]) == [str(tmp_path / name) for name in expected]
    assert Opener(filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())).files([glob]) == expected


def test_files_of_several_paths_ascend_and_relative_ones_become_absolute(tmp_path, monkeypatch):
    for name in ("b/x.parquet", "a/y.parquet"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert Opener().files(["b", "a/y.parquet"]) == [str(tmp_path / "a/y.parquet"), str(tmp_path / "b/x.parquet")]


@pytest.mark.parametrize("path", ["none.parquet", "none", "none*.parquet", "empty"])
def test_no_files_is_an_error_that_names_the_path(tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(EventsError, match=r"none|empty"):
        Opener().files([tmp_path / path])


@pytest.mark.parametrize(
    ("inside", "kind"),
    [("_delta_log/0.json", "Delta"), (".hoodie/x", "Hudi"), ("metadata/v1.metadata.json", "Iceberg")],
)
def test_folders_of_tables_are_left_to_their_own_readers(tmp_path, inside, kind):
    write(tmp_path / "a.parquet")
    (tmp_path / inside).parent.mkdir()
    (tmp_path / inside).touch()
    with pytest.raises(DirectReadError, match=kind):
        Opener().files([tmp_path])
    with pytest.raises(DirectReadError, match=r"name of a table, .*\nhint: .* spark_glue\.read\(spark, 'delta:t@3'\)"):
        Opener().files(["delta:t@3"])


def test_formats_are_told_by_names_or_else_by_first_bytes(tmp_path):
    assert [named_format(name) for name in ("a.PQ", "b.feather", "c.csv", "d")] == [PARQUET, IPC, None, None]
    for ending, expected in ((".parquet", PARQUET), (".arrow", IPC)):
        shutil.move(write(tmp_path / f"x{ending}"), tmp_path / "part-0")
        assert Opener().format(str(tmp_path / "part-0")) is expected
    (tmp_path / "part-0").write_text("a,b\n")
    with pytest.raises(DirectReadError, match="part-0: neither a Parquet file nor an Arrow IPC file"):
        Opener().format(str(tmp_path / "part-0"))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 damaged PAR1", b"ARROW1\0\0 damaged ARROW1"])
def test_damaged_files_are_named(tmp_path, content):
    for name in ("x.parquet", "x.arrow"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(EventsError, match=rf"{name}: cannot be read"):
            Opener().parquet(str(tmp_path / name)) if name == "x.parquet" else Opener().ipc(str(tmp_path / name))
    with pytest.raises(EventsError, match=r"gone.parquet: no such file"):
        Opener().parquet(str(tmp_path / "gone.parquet"))


def test_an_unknown_column_of_an_ipc_file_is_named(tmp_path):
    with pytest.raises(EventsError, match=r"x.arrow: no column 'k'"):
        Opener().ipc(write(tmp_path / "x.arrow"), ["type", "k"])


def test_another_store_gives_the_same_as_local_files(tmp_path):
    """An object store names its files with their bucket, is not mapped, and is opened through its file system."""
    names = ["day=1/a b.parquet", "day=2/c%20d.parquet", "e.arrow"]
    for name in names:
        write(tmp_path / "bucket" / name)
    opener = Opener(filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    opener = pickle.loads(pickle.dumps(opener))
    found = opener.files(["s3a://bucket/"])
    assert found == ["s3a://bucket/day=1/a%20b.parquet", "s3a://bucket/day=2/c%2520d.parquet", "s3a://bucket/e.arrow"]
    assert opener.files(["s3a://bucket"]) == opener.files(["s3a://bucket/**"]) == found
    assert opener.files(["s3a://bucket/day=*"]) == found[:2]
    assert opener.local(found[0]) is None
    for path, name in zip(found, names, strict=True):
        assert opener.stat(path)[0] == (tmp_path / "bucket" / name).stat().st_size
        if opener.format(path) is PARQUET:
            with opener.parquet(path) as file:
                assert file.read().equals(TABLE)
        else:
            with opener.ipc(path) as reader:
                assert reader.read_all().equals(TABLE)
    with pytest.raises(EventsError, match=r"s3a://bucket/none.parquet: no such file"):
        opener.stat("s3a://bucket/none.parquet")


class _Folder:
    """As little of fsspec as pyarrow asks of it, over a local folder; its paths do not have the host."""

    protocol = "toy"

    def __init__(self, root):
        self.root = root

    def _strip_protocol(self, uri):
        return "/" + uri.split("://", 1)[-1].partition("/")[2].strip("/")

    def info(self, path):
        own = self.root / path.strip("/")
        if not own.exists():
            raise FileNotFoundError(path)
        kind = "directory" if own.is_dir() else "file"
        return {"name": path, "type": kind, "size": own.stat().st_size}

    def exists(self, path):
        return (self.root / path.strip("/")).exists()

    def isfile(self, path):
        return (self.root / path.strip("/")).is_file()

    def isdir(self, path):
        return (self.root / path.strip("/")).is_dir()

    def find(self, path, maxdepth=None, withdirs=False, detail=False):
        own = [p for p in (self.root / path.strip("/")).rglob("*") if withdirs or p.is_file()]
        names = ["/" + str(p.relative_to(self.root)) for p in own]
        return {name: self.info(name) for name in names}

    def open(self, path, mode="rb"):
        return open(self.root / path.strip("/"), mode)


def test_other_file_systems_come_from_fsspec(tmp_path, monkeypatch):
    path = write(tmp_path / "folder" / "a b.parquet")
    core = types.SimpleNamespace(url_to_fs=lambda uri: (_Folder(tmp_path), uri))
    monkeypatch.setitem(sys.modules, "fsspec", types.SimpleNamespace(core=core))
    opener = Opener()
    assert opener.files(["toy://host:1/folder"]) == ["toy://host:1/folder/a%20b.parquet"]
    assert opener.stat("toy://host:1/folder/a%20b.parquet") == (os.path.getsize(path), 0)
    with opener.parquet("toy://host:1/folder/a%20b.parquet") as file:
        assert file.read().equals(TABLE)


def test_unknown_file_systems_are_a_reason_not_a_failure(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DirectReadError, match="no file system for toy:, and fsspec is not installed"):
        Opener().parquet("toy://host/x.parquet")
    if not os.path.isdir("/dbfs"):
        with pytest.raises(DirectReadError, match="/dbfs"):
            Opener().stat("dbfs:/x.parquet")


def test_settings_of_spark_are_those_of_hadoop_and_are_not_shown():
    opener = Opener({"spark.hadoop.fs.s3a.secret.key": "secret", "fs.s3a.access.key": "key", "spark.app.name": "x"})
    assert opener.options == {"fs.s3a.secret.key": "secret", "fs.s3a.access.key": "key"} == relevant(opener.options)
    assert "secret" not in repr(opener)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"access.key": "k"}, {}),
        ({"access.key": "k", "secret.key": "s"}, {"access_key": "k", "secret_key": "s"}),
        (
            {"access.key": "k", "secret.key": "s", "session.token": "t", "endpoint.region": "eu-west-1"},
            {"access_key": "k", "secret_key": "s", "session_token": "t", "region": "eu-west-1"},
        ),
        (
            {"access.key": "k", "bucket.b.access.key": "own", "secret.key": "s"},
            {"access_key": "own", "secret_key": "s"},
        ),
        (
            {"endpoint": "http://minio:9000", "path.style.access": "true"},
            {"endpoint_override": "minio:9000", "scheme": "http", "force_virtual_addressing": False},
        ),
        (
            {"endpoint": "store.example.org", "connection.ssl.enabled": "false"},
            {"endpoint_override": "store.example.org", "scheme": "http", "force_virtual_addressing": True},
        ),
        (
            {"endpoint": "https://store.example.org/", "connection.ssl.enabled": "false"},
            {"endpoint_override": "store.example.org", "force_virtual_addressing": True},
        ),
        ({"endpoint": "s3.amazonaws.com"}, {}),
        ({"endpoint": "https://s3.eu-central-1.amazonaws.com"}, {"region": "eu-central-1"}),
        ({"endpoint": "s3-us-west-2.amazonaws.com", "endpoint.region": "us-east-1"}, {"region": "us-east-1"}),
        ({"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {"anonymous": True}),
        (
            {"aws.credentials.provider": "x.AssumedRoleCredentialProvider", "assumed.role.arn": "arn:r"},
            {"role_arn": "arn:r"},
        ),
    ],
)
def test_settings_of_s3(options, expected):
    found = s3_arguments("b", {f"fs.s3a.{name}": value for name, value in options.items()})
    assert found == expected
    fs.S3FileSystem(**{"region": "us-east-1", **found})  # it knows all of them


def test_a_role_by_keys_is_refused():
    names = {"aws.credentials.provider": "AssumedRole", "assumed.role.arn": "arn:r", "access.key": "k"}
    with pytest.raises(DirectReadError, match="assume the role arn:r"):
        s3_arguments("b", {f"fs.s3a.{name}": value for name, value in names.items()})


HOST = "acc.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({f"fs.azure.account.key.{HOST}": "a2V5"}, {"account_key": "a2V5"}),
        ({"fs.azure.account.key.acc.blob.core.windows.net": "a2V5"}, {"account_key": "a2V5"}),
        ({"fs.azure.account.key.other.dfs.core.windows.net": "a2V5"}, {}),
        ({f"fs.azure.sas.fixed.token.{HOST}": "sv=1"}, {"sas_token": "sv=1"}),
        (
            {
                f"fs.azure.account.oauth2.client.id.{HOST}": "id",
                "fs.azure.account.oauth2.client.secret": "secret",
                "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant/oauth2/token",
            },
            {"client_id": "id", "client_secret": "secret", "tenant_id": "tenant"},
        ),
    ],
)
def test_settings_of_azure(options, expected):
    found = azure_arguments(f"box@{HOST}", options)
    assert found == {"account_name": "acc", **expected}
    fs.AzureFileSystem(**found)


def test_azure_without_an_account_is_refused():
    with pytest.raises(DirectReadError, match="container@account"):
        azure_arguments("box", {})


def test_settings_of_google(monkeypatch):
    assert gcs_arguments({"fs.gs.auth.type": "unauthenticated"}) == {"anonymous": True}
    found = gcs_arguments({"fs.gs.storage.root.url": "http://localhost:4443"})
    assert found == {"endpoint_override": "localhost:4443", "scheme": "http"}
    name = "fs.gs.auth.service.account.json.keyfile"
    with pytest.raises(DirectReadError, match=r"GOOGLE_APPLICATION_CREDENTIALS=/k.json"):
        gcs_arguments({name: "/k.json"})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/k.json")
    assert gcs_arguments({name: "/k.json"}) == {}


@pytest.mark.parametrize(
    ("scheme", "authority", "expected"),
    [
        ("hdfs", "node:8020", {"host": "node", "port": 8020}),
        ("hdfs", "service", {"host": "service", "port": 0}),
        ("hdfs", "", {"host": "default", "port": 0}),
        ("hdfs", "me@node:9", {"host": "node", "port": 9, "user": "me"}),
        ("viewfs", "cluster", {"host": "viewfs://cluster", "port": 0}),
    ],
)
def test_settings_of_hdfs(scheme, authority, expected):
    assert hdfs_arguments(scheme, authority, {}) == expected
    extra = {"dfs.client.use.datanode.hostname": "true"}
    assert hdfs_arguments(scheme, authority, {**extra, "fs.s3a.x": "y"}) == {**expected, "extra_conf": extra}


@pytest.mark.parametrize("path", ["s3a://bucket/a%20b/c.parquet", "gs://bucket/a%20b/c.parquet"])
def test_paths_in_buckets(path):
    address = address_of(path)
    assert path_in_store(address, fs.LocalFileSystem()) == "bucket/a b/c.parquet"
    assert address.uri == path


def test_paths_in_containers_and_on_name_nodes():
    azure = address_of("abfss://box@acc.dfs.core.windows.net/a/b.parquet")
    assert path_in_store(azure, fs.LocalFileSystem()) == "box/a/b.parquet"
    assert path_in_store(address_of("hdfs://node:8020/a/b.parquet"), fs.LocalFileSystem()) == "/a/b.parquet"


# ---- changes ----------------------------------------------------------------------------------------------------


def planned(path):
    size, stamp = Opener().stat(path)
    return File(path, size, stamp, 0, 3)


def test_a_file_that_stays_passes(tmp_path):
    file = planned(write(tmp_path / "x.parquet"))
    check_file(Opener(), file)
    check_file(Opener(), File(file.path, file.size, 0, 0, 3))  # a store that knows no times


@pytest.mark.parametrize("what", ["grown", "written again", "gone"])
def test_a_file_that_changes_is_named(tmp_path, what):
    path = Path(write(tmp_path / "x.parquet"))
    file = planned(str(path))
    if what == "gone":
        path.unlink()
    if what == "grown":
        write(path, pa.concat_tables([TABLE] * 1000))
    if what == "written again":
        os.utime(path, ns=(file.stamp, file.stamp + 1))
    with pytest.raises(EventsError, match=r"x.parquet: changed since the job was planned.*(\n.*)*hint: run again"):
        check_file(Opener(), file)


# ---- folders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "kind", "value"),
    [
        ("7", pa.int32(), 7),
        ("-7", pa.int64(), -7),
        ("007", pa.string(), "007"),
        ("007", pa.int32(), 7),
        ("7", None, "7"),
        ("a%3Ab%25", pa.string(), "a:b%"),
        ("2024-02-29", pa.date32(), datetime.date(2024, 2, 29)),
        ("2024-02-29 01%3A02%3A03.5", pa.timestamp("us"), datetime.datetime(2024, 2, 29, 1, 2, 3, 500000)),
        ("true", pa.bool_(), True),
        ("0.5", pa.float64(), 0.5),
        ("0.50", pa.decimal128(5, 2), Decimal("0.50")),
        ("__HIVE_DEFAULT_PARTITION__", pa.int32(), None),
    ],
)
def test_values_of_folders(folder, kind, value):
    path = f"/data/x=1/k={folder}/a=b.parquet"
    for each in (path, as_spark_names(path)):
        assert folder_values(each, {"k": kind, "x": None}) == (("k", value), ("x", "1"))


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("k=x", pa.int32()),
        ("k=300", pa.int8()),
        ("k=1", pa.timestamp("us", "UTC")),
        ("K=1", pa.int32()),
        ("k=x", pa.bool_()),
    ],
)
def test_values_that_folders_do_not_tell(folder, kind):
    with pytest.raises(DirectReadError, match=f"/{folder}/a.parquet: .*'k'"):
        folder_values(f"/data/{folder}/a.parquet", {"k": kind})


def test_numbers_of_buckets():
    assert bucket_of("/t/part-00002-2d1f_00003.c000.snappy.parquet") == 3
    assert bucket_of("/t_9/part-0-x_00012") == 12
    rng = random.Random(0)
    for _ in range(20):
        n = rng.randrange(100_000)
        assert bucket_of(f"file:///a_7/part-1-{rng.random()}_x_{n:05d}.c000.parquet") == n
    with pytest.raises(DirectReadError, match="bucket"):
        bucket_of("/t_9/part-00002.parquet")
