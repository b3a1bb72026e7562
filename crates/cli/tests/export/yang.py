"""Checks CONFIG_DB files against SONiC's YANG models: yang.py MODELS FILE...

MODELS is a copy of `src/sonic-yang-models` of sonic-net/sonic-buildimage. Needs `libyang` and `jinja2` from PyPI.
The mapping from tables to YANG is the one that SONiC's `sonic_yang` performs: keys are joined by `|`, a table of maps
has an inner list of the table's own name, and a row without a list is a container.
"""

import json
import pathlib
import sys
import tempfile

import jinja2
import libyang


def models(folder: pathlib.Path, into: pathlib.Path) -> None:
    """All models in one folder; the templates rendered as SONiC does for Python."""
    for file in (folder / "yang-models").glob("*.yang"):
        (into / file.name).write_text(file.read_text())
    for file in (folder / "yang-templates").glob("*.j2"):
        text = jinja2.Template(file.read_text(), trim_blocks=True).render(yang_model_type="py")
        (into / file.name.removesuffix(".j2")).write_text(text)


def typed(leaf, value):
    """A value as YANG's JSON writes it. A union may hold a number or a text: libyang decides by the JSON type."""
    base = leaf.type().base()
    numbers = (libyang.Type.UINT8, libyang.Type.UINT16, libyang.Type.UINT32, libyang.Type.INT32)
    if base in numbers:
        return int(value)
    if base == libyang.Type.BOOL:
        return value == "true"
    if base == libyang.Type.UNION and value.isdigit():
        kinds = {t.base() for t in leaf.type().union_types()}
        return int(value) if kinds & set(numbers) else value
    return value


def row(node, module, fields):
    """The fields of a row, each of which the model must know."""
    leaves = {child.name(): child for child in node.children()}
    unknown = sorted(set(fields) - set(leaves))
    if unknown:
        raise ValueError(f"{node.name()}: the model has no {', '.join(unknown)}")
    return {name: typed(leaves[name], value) for name, value in fields.items()}


def table(container, module, rows):
    """A table as the model's container."""
    name = container.name()
    children = list(container.children())
    lists = [child for child in children if isinstance(child, libyang.schema.SList)]
    out = {}
    for key, fields in rows.items():
        own = [c for c in children if isinstance(c, libyang.schema.SContainer) and c.name() == key]
        if own:
            out[key] = row(own[0], module, fields)
            continue
        parts = key.split("|")
        fits = [entry for entry in lists if len(list(entry.keys())) == len(parts)]
        fits = [entry for entry in fits if "TEMPLATE" not in entry.name()]
        if not fits:
            raise ValueError(f"{name}: no list has the key {key}")
        entry = fits[0]
        made = {k.name(): typed(k, part) for k, part in zip(entry.keys(), parts)}
        inner = [c for c in entry.children() if isinstance(c, libyang.schema.SList)]
        if inner:
            keys = [k for k in inner[0].keys()]
            value = [c for c in inner[0].children() if c.name() not in {k.name() for k in keys}][0]
            made[inner[0].name()] = [
                {keys[0].name(): typed(keys[0], k), value.name(): typed(value, v)} for k, v in fields.items()
            ]
        else:
            made |= row(entry, module, fields)
        out.setdefault(entry.name(), []).append(made)
    return out


def main() -> int:
    folder, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as scratch:
        models(folder, pathlib.Path(scratch))
        with libyang.Context(scratch) as context:
            files_of = sorted(pathlib.Path(scratch).glob("sonic-*.yang"))
            # Loading a module compiles others anew, so nothing of a module is kept before all are loaded.
            for file in files_of:
                context.load_module(file.stem)
            tables = {}
            for file in files_of:
                module = context.get_module(file.stem)
                for top in module.children(types=(libyang.SNode.CONTAINER,)):
                    for container in top.children(types=(libyang.SNode.CONTAINER,)):
                        tables.setdefault(container.name(), (module, top, container))
            for file in files:
                config = json.loads(pathlib.Path(file).read_text())
                data = {}
                for name, rows in config.items():
                    module, top, container = tables[name]
                    inner = data.setdefault(f"{module.name()}:{top.name()}", {})
                    inner[name] = table(container, module, rows)
                parsed = context.parse_data_mem(
                    json.dumps(data), "json", strict=True, validate_present=True
                )
                parsed.free()
                print(f"{file}: {len(config)} tables fit SONiC's models")
    return 0


sys.exit(main())
