"""Names of every option, found in the sources and in the output of the tools."""
import glob
import os
import re
import subprocess

TOOLS = ("checkpoint", "diff-program", "inspect-program", "job-report", "launch", "migrate", "pserver", "quantize-program", "run-program", "status",
         "transpile-program")
COMMON = {"--" + name for name in (
    "help help-all version json quiet verbose output force config threads seed max-model-bytes max-tensor-bytes timeout log-format "
    "print-config bash-completion zsh-completion manual").split()}


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def strings(text):
    return set(re.findall(r'"([^"\\\n]+)"', text))


def between(text, begin, end):
    """The part of a source between two markers, which must exist."""
    at = text.index(begin)
    return text[at:text.index(end, at)]


def flags(tools, name):
    """Long options of a tool; for two spellings (--metrics,--metrics-port) both."""
    text = subprocess.run([os.path.join(tools, name), "--help-all"], capture_output=True, text=True, check=True).stdout
    found = set()
    for line in text.splitlines():
        if re.match(r"  -", line):
            label = re.split(r"\s{2,}", line.strip())[0]
            found |= set(re.findall(r"(?:^|, )(--[A-Za-z][\w-]*)", label))
    return found


def members(text, struct):
    """Fields of a struct with an initializer or of a class type, one per line."""
    body = between(text, f"struct {struct} {{", "\n};")
    body = re.sub(r"///[^\n]*|//[^\n]*", "", body)
    return set(re.findall(r"\b(\w+)(?:\s*=\s*[^;]*)?;", re.sub(r"\s+", " ", body)))


def constants(text, table):
    return strings(between(text, table, "};"))


def environment(root):
    """Names of environment variables that the tools and the layers below them read."""
    found = set()
    for folder in ("tools", "jobs", "fleet", "executor", "ps", "framework", "kernels"):
        for path in glob.glob(os.path.join(root, folder, "**", "*.cc"), recursive=True):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if "/tools/dev/" in path:
                continue
            found |= set(re.findall(r'getenv\("(\w+)"\)', text))
            if re.search(r"environ\b|EnvironmentReader|Needed|Launcher", text):
                found |= set(re.findall(r'"((?:MILLRACE|PADDLE|FLAGS|SYS|POD|SLURM|OMPI|PMI|MPI|MASTER|TRAINING|CPU|HETER|STAGE)_\w+)"', text))
                found |= set(re.findall(r'"(RANK|WORLD_SIZE|LOCAL_RANK|MPI_LOCALRANKID|POD_IP|CPU_NUM)"', text))
    return {name for name in found if not name.endswith("_")}


def config_members(root):
    """Members of the JSON files that --minimize, --fleet and --downpour read, by the file that reads them."""
    found = set()
    for name in ("minimize_config", "optimizer_config", "fleet_config", "downpour_config"):
        text = read(root, f"jobs/config/{name}.cc")
        found |= set(re.findall(r'\.(?:number|whole|boolean|text|numbers|strings|require|find)\("(\w+)"', text))
        found |= set(re.findall(r'fields\.find\("(\w+)"\)', text))
    return found


def all_names(root, tools):
    """class -> names."""
    strategy = read(root, "fleet/strategy/distributed_strategy.cc")
    table = read(root, "fleet/strategy/table_settings.cc")
    fields = read(root, "executor/parallel/strategy_fields.cc")
    names = {f"flags {tool}": flags(tools, tool) - COMMON for tool in TOOLS}
    names["flags common"] = set.intersection(*(flags(tools, tool) for tool in TOOLS)) & COMMON
    names["transpiler config"] = (
        members(read(root, "transpiler/distribute_config.h"), "DistributeTranspilerConfig") |
        members(read(root, "transpiler/distribute_config.h"), "TranspileArguments"))
    names["build strategy"] = constants(fields, "kBuildFields[]")
    names["execution strategy"] = constants(fields, "kExecutionFields[]")
    names["a_sync_configs"] = constants(strategy, "kAsyncKeys[]")
    names["trainer_desc_configs"] = strings(
        between(strategy, "check_keys(configs,\n                 {\"trainer\"", "what))"))
    names["fs_client_param"] = {"uri", "user", "passwd", "hadoop_bin"} & strings(strategy)
    names["fleet_desc_configs"] = (constants(read(root, "fleet/strategy/sparse_settings.h"), "kSparseKeys[]") |
                                   constants(table, "kMoreKeys[]"))
    names["communicator"] = constants(read(root, "ps/communicator/comm_options.cc"), "kSettings[]") | set(
        re.findall(r'key == "(\w+)"', read(root, "ps/communicator/comm_options.cc")))
    names["environment"] = environment(root)
    names["configuration files"] = config_members(root)
    return names
