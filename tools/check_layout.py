#!/usr/bin/env python3
"""Checks the layout rules that no compiler checks (docs of each rule below).

  tools/check_layout.py               check this repository, exit 1 on offenders
  tools/check_layout.py --self-test   plant one violation of each rule in a
                                      temporary folder: each must be found

Not measured: sizes of functions in JavaScript and shell, which nothing here
parses, and Python of tests, docs, deploy and models.

The tables come first: changing a rule means changing a table.
"""

import os
import re
import sys
import tempfile

import checked_tree
import cpp_shapes
import py_shapes

# What each folder may include of ours, besides itself. The longest matching
# folder decides ("common/rpc/x.h" is under "common/rpc"). An entry ending in
# ".h" allows that one header, "*" everything but tests.
ALLOWED_INCLUDES = {
    "common": [],
    "common/rpc": ["common"],
    # What is said of the generated code, beside it.
    "proto": [],
    "tokenizer": ["common"],
    # Chat templates: text in, text out.
    "chat": ["common"],
    "kernels": ["common"],
    "speculation": ["common"],
    "model": ["kernels", "common"],
    "telemetry": ["common", "proto"],
    # What workers and coordinator say to each other, said once.
    "wire": ["speculation", "common", "proto"],
    # The tokenizer's vocabulary only: a worker proves which one it has.
    "worker": ["wire", "telemetry", "model", "speculation", "kernels",
               "tokenizer", "common", "proto"],
    "draft_worker": ["worker", "wire", "model", "speculation",
                     "kernels/backend.h", "kernels/backend_factory.h", "common",
                     "proto"],
    "target_worker": ["worker", "wire", "model", "speculation",
                      "kernels/backend.h", "kernels/backend_factory.h",
                      "common", "proto"],
    # Wings of the coordinator, the lowest first.
    "coordinator/fleet": ["wire", "speculation", "common"],
    "coordinator/dispatch": ["coordinator/fleet", "wire", "telemetry",
                             "speculation", "tokenizer", "common"],
    "coordinator/api": ["coordinator/dispatch", "coordinator/fleet", "wire",
                        "telemetry", "speculation", "tokenizer", "common",
                        "proto"],
    "coordinator/observe": ["coordinator/api", "coordinator/dispatch",
                            "coordinator/fleet", "telemetry", "speculation",
                            "common", "proto"],
    "coordinator": ["coordinator", "wire", "telemetry", "speculation",
                    "tokenizer", "common", "proto"],
    # A client of the coordinator, over HTTP to its own.
    "gateway": ["chat", "telemetry", "tokenizer", "common", "proto"],
    # The whole service in virtual time.
    "simulation": ["coordinator", "draft_worker", "target_worker", "worker",
                   "wire", "model", "speculation", "tokenizer", "common"],
    "tools": ["*"],
    "tests": ["*", "tests"],
}

# Below common/rpc only what really speaks RPC may use "common/rpc".
RPC_FREE_FOLDERS = ["common", "tokenizer", "chat", "kernels", "speculation",
                    "simulation", "model"]

# Folders without I/O, clocks and threads, and the headers that would bring them:
# of C++ (random: its random_device reads the system's), of libraries and ours.
# All headers of the system do, too (<unistd.h>).
PURE_FOLDERS = ["speculation"]
IMPURE_HEADERS = re.compile(
    r"atomic|barrier|chrono|condition_variable|cstdio|ctime|filesystem|fstream"
    r"|future|iostream|istream|latch|mutex|ostream|print|random|semaphore"
    r"|shared_mutex|stop_token|syncstream|thread"
    r"|absl/(log|random|synchronization)/.*|absl/time/clock\.h"
    r"|common/(clock|files|logging|mutex_checks|periodic_thread|watchdog)\.h")
SYSTEM_HEADER = re.compile(r"<.*\.h")

# Python of the product.
PYTHON = re.compile(r"(?!(tests|docs|deploy|models)/|.*/(tests|examples)/).*\.py")
# The only folder that may include gRPC's own headers besides the services.
GRPC_FOLDERS = ["common/rpc", "telemetry", "worker", "draft_worker",
                "target_worker", "coordinator", "gateway", "tools", "tests"]

# Generated protobuf headers stop at the service and the client. A file may
# include them when it is in one of these folders and its name has one of these
# words, or when it is listed.
PROTO_FOLDERS = ["telemetry", "wire", "worker", "draft_worker", "target_worker",
                 "coordinator", "gateway", "tools", "proto", "tests"]
PROTO_WORDS = ["service", "client", "codec", "convert", "registry", "stream",
               "main"]
PROTO_FILES = [
    # The reactors of one call, the other half of their service file.
    "coordinator/api/attachment.h",
    "coordinator/api/attachment.cc",
    "coordinator/api/generate_call.h",
    "coordinator/api/generate_call.cc",
    # A worker's side of Registry.Attach.
    "worker/process/registration.h",
    "worker/process/registration.cc",
    # What both ends of a stream of tensors say about the link beside it.
    *[f"worker/tensors/link_{end}" for end in
      ("receiver.h", "receiver.cc", "sender.h", "sender.cc")],
    # What the gateway's client has of an answer, as it came.
    "gateway/cut_answer.h",
    # What coordinators told that client of their models, taken together.
    "gateway/served_model.h",
    # Names of the API's enumerations, for flags, JSON and HTTP.
    "proto/names.h",
]
# Whole folders that are clients from end to end.
PROTO_FREE_RANGE = ["tools", "tests"]

# Includes the library of JSON so that it checks what is read.
JSON_HEADER = "common/json.h"

# All else takes JSON of files from ParseJsonObject, which limits its depth:
# what the library does with a deep value ends the process.
JSON_PARSERS = [
    "common/json_fields.cc",
    "common/logging.cc",  # its own lines
    "gateway/json_body.cc",  # with limits of its own
    "gateway/refused_fields.cc",  # constants
    "model/safetensors.cc",  # after CheckJsonDepth
]

# Every source of these folders has a test at the mirrored path.
TESTED_FOLDERS = ["common", "tokenizer", "chat", "kernels", "model", "speculation",
                  "simulation", "telemetry", "wire", "worker", "draft_worker",
                  "target_worker",
                  "coordinator", "gateway"]
# ... except these: path to the reason.
UNTESTED = {
    "common/rpc/signals.cc": "tested through the processes (tests/integration)",
    "draft_worker/main.cc": "flags and wiring (tests/integration)",
    "target_worker/feature_shelf.cc": "tests/target_worker/row_publisher_test.cc",
    "target_worker/text_rows.cc": "tests/target_worker/row_publisher_test.cc",
    "target_worker/main.cc": "flags and wiring (tests/integration)",
    "gateway/main.cc": "flags and wiring (tests/integration)",
    "coordinator/main.cc": "flags and wiring (tests/integration)",
    "coordinator/security_flags.cc": "flags and wiring (tests/integration)",
}

# Sources whose behaviour another test of the tree checks, through the interface
# that users of the folder see: path to that test.
TESTED_BY = {
    "worker/process/compute_flags.cc": "tests/worker/process/options_test.cc",
    **{f"chat/{name}.cc": "tests/chat/goldens_test.cc"
       for name in ("attributes", "comparison", "environment", "evaluator",
                    "expression_evaluator", "filters", "format_text",
                    "item_filters", "loop_items", "methods", "operators",
                    "predicates", "python_text", "scope", "sequence_filters",
                    "sequences", "string_methods", "string_units",
                    "text_filters", "value")},
    **{f"chat/{name}.cc": "tests/chat/parser_test.cc"
       for name in ("expression_parser", "lexer", "program_builder",
                    "supported")},
    "chat/render_context.cc": "tests/chat/limits_test.cc",
    "kernels/nccl_group.cc": "tests/kernels/nccl_collective_test.cc",
    "model/config_fields.cc": "tests/model/config_test.cc",
    "model/draft_files.cc": "tests/model/medusa_heads_test.cc",
    "model/first_forward.cc": "tests/worker/process/own_draft_kinds_test.cc",
    "model/draft_tensors.cc": "tests/model/eagle_model_test.cc",
    "model/eagle_folder.cc": "tests/model/eagle_model_test.cc",
    "model/eagle_projection.cc": "tests/model/remote_eagle_test.cc",
    "model/eagle_sequence.cc": "tests/model/remote_eagle_test.cc",
    "model/eagle_weights.cc": "tests/model/eagle_model_test.cc",
    "model/feature_step.cc": "tests/model/eagle_model_test.cc",
    "model/glide_weights.cc": "tests/model/glide_model_test.cc",
    "model/kv_store.cc": "tests/model/kv_pool_test.cc",
    "model/layer_runner.cc": "tests/model/transformer_test.cc",
    "model/tensor_rows.cc": "tests/model/checkpoint_test.cc",
    "common/control_groups.cc": "tests/common/memory_limit_test.cc",
    "chat/text.cc": "tests/chat/user_text_test.cc",
    "coordinator/api/generate_call.cc":
        "tests/coordinator/api/inference_service_test.cc",
    "coordinator/api/grpc_peer.cc": "tests/coordinator/api/authenticator_test.cc",
    "coordinator/observe/request_trace.cc":
        "tests/coordinator/observe/trace_observer_test.cc",
    **{f"draft_worker/{name}.cc": f"tests/draft_worker/{test}_test.cc"
       for name, test in (("hidden_reader", "engine_hidden"),
                          ("open_session", "engine_commands"),
                          ("row_drafter", "engine_draws"),
                          ("step_planner", "fairness"))},
    **{f"target_worker/{name}.cc": f"tests/target_worker/engine_{test}_test.cc"
       for name, test in (("hidden_taps", "hidden"), ("head_drafts", "heads"),
                          ("look_turns", "heads"),
                          ("feature_drafts", "features"),
                          ("open_session", "commands"), ("own_drafts", "heads"),
                          ("row_sampler", "draws"), ("step_planner", "trees"),
                          ("step_verdicts", "verify"),
                          ("suffix_memory", "suffixes"))},
    "common/rpc/watched_health.cc": "tests/worker/process/health_test.cc",
    "telemetry/otlp_client.cc": "tests/telemetry/otlp_exporter_test.cc",
    "telemetry/otel_variables.cc":
        "tests/telemetry/collector_settings_test.cc",
    "coordinator/observe/metrics_series.cc":
        "tests/coordinator/observe/metrics_observer_test.cc",
    "coordinator/api/attachment.cc":
        "tests/coordinator/api/registry_service_test.cc",
    **{f"wire/{name}.cc": "tests/wire/session_codec_test.cc"
       for name in ("codec_parts", "commands_codec", "events_codec")},
    "coordinator/dispatch/event_router.cc":
        "tests/coordinator/dispatch/dispatcher_test.cc",
    "coordinator/dispatch/pairing.cc":
        "tests/coordinator/dispatch/dispatcher_lifecycle_test.cc",
    "coordinator/dispatch/relocator.cc":
        "tests/coordinator/dispatch/dispatcher_failover_test.cc",
    "coordinator/dispatch/request_desk.cc":
        "tests/coordinator/dispatch/dispatcher_requests_test.cc",
    "gateway/http_session.cc": "tests/gateway/http_server_test.cc",
    **{f"gateway/{name}.cc": "tests/gateway/request_convert_test.cc"
       for name in ("field_reader", "refused_fields")},
    **{f"gateway/{name}.cc": "tests/gateway/answer_convert_test.cc"
       for name in ("token_text", "usage_convert")},
    "gateway/completion_stream.cc": "tests/gateway/gateway_service_test.cc",
    "kernels/node_link.cc": "tests/kernels/node_collective_test.cc",
    "kernels/weight_groups.cc": "tests/kernels/cpu_grouped_test.cc",
    "kernels/no_nccl.cc": "tests/worker/tensors/transports_test.cc",
    "kernels/no_peers.cc": "tests/worker/process/options_test.cc",
    "kernels/cuda/peer_collective.cc": "tests/kernels/peer_collective_test.cc",
    "kernels/cuda/peer_group.cc": "tests/kernels/peer_collective_test.cc",
    "kernels/cuda/peer_sums.cu": "tests/kernels/peer_collective_test.cc",
    "kernels/cpu/attention.cc": "tests/kernels/cpu_accuracy_test.cc",
    "kernels/cpu/cpu_backend.cc": "tests/kernels/cpu_accuracy_test.cc",
    "kernels/cpu/dense_matrix.cc": "tests/kernels/batch_invariance_test.cc",
    "kernels/cpu/elementwise.cc": "tests/kernels/cpu_accuracy_test.cc",
    "kernels/cpu/gemm.cc": "tests/kernels/cpu_accuracy_test.cc",
    **{f"kernels/cpu/{name}.cc": "tests/kernels/cpu_coded_test.cc"
       for name in ("coded_weights", "gemm_avx512coded")},
    "kernels/cpu/gemm_avx512bf16.cc": "tests/kernels/cpu_rounded_test.cc",
    "kernels/cpu/grouped_gemm.cc": "tests/kernels/cpu_grouped_test.cc",
    "kernels/cpu/grouped_matrix.cc": "tests/kernels/cpu_grouped_test.cc",
    "kernels/cpu/quantized_gemm.cc": "tests/kernels/cpu_quantized_test.cc",
    "kernels/cpu/quantized_pack_vnni.cc": "tests/kernels/cpu_quantized_test.cc",
    **{f"kernels/cpu/quantized_gemm_{cpu}.cc":
           "tests/kernels/cpu_quantized_test.cc"
       for cpu in ("avx2", "dotprod", "neon", "vnni")},
    "kernels/cpu/quantized_matrix.cc": "tests/kernels/cpu_quantized_test.cc",
    "kernels/cpu/softmax_sums.cc": "tests/model/distribution_test.cc",
    "kernels/cpu/stacked_weights.cc": "tests/kernels/stacked_weights_test.cc",
    "kernels/cpu/thread_pool.cc": "tests/kernels/thread_pool_test.cc",
    **{f"kernels/cuda/{name}": "tests/kernels/cuda/cuda_backend_test.cc"
       for name in ("attention.cu", "cuda_memory.cc", "cuda_row_ops.cc",
                    "elementwise.cu", "f32_gemm.cu", "norm.cu", "store_kv.cu")},
    **{f"kernels/cuda/{name}": "tests/kernels/cuda/cublas_lt_test.cc"
       for name in ("cuda_library.cc", "no_cublas_lt.cc")},
    "kernels/cuda/attention_wide.cu":
        "tests/kernels/cuda/cuda_wide_attention_test.cc",
    "kernels/cuda/cuda_products.cc": "tests/kernels/cuda/cuda_fused_test.cc",
    "kernels/cuda/gemm_pairs.cu": "tests/kernels/cuda/cuda_pairs_test.cc",
    "kernels/cuda/prompt_rows.cu": "tests/kernels/cuda/cublas_prompts_test.cc",
    "kernels/cuda/persistent.cu": "tests/model/cuda_persistent_test.cc",
    "model/prompt_weights.cc": "tests/model/cuda_prompts_test.cc",
    **{f"kernels/cuda/{name}": "tests/model/device_draw_test.cc"
       for name in ("cuda_token_drawer.cc", "draw_tokens.cu")},
    "kernels/reference/reference_backend.cc":
        "tests/kernels/reference_backend_test.cc",
    "model/activations.cc": "tests/model/transformer_test.cc",
    **{f"common/gguf/{name}.cc": "tests/common/gguf/gguf_file_test.cc"
       for name in ("metadata", "tensor_type")},
    **{f"model/gguf/{name}.cc": "tests/model/gguf/gguf_model_test.cc"
       for name in ("dequantize", "gguf_config", "gguf_tensors")},
    "tokenizer/gguf_vocabulary.cc": "tests/tokenizer/gguf_tokenizer_test.cc",
    "model/safetensors_writer.cc": "tests/model/safetensors_test.cc",
    "model/step_rows.cc": "tests/model/tree_test.cc",
    "model/cross_attention.cc": "tests/model/glide_model_test.cc",
    "model/weights.cc": "tests/model/transformer_test.cc",
    **{f"simulation/{name}.cc": "tests/simulation/fleet_test.cc"
       for name in ("fleet_failures", "fleet_world", "scripted_drafter",
                    "scripted_model")},
    **{f"simulation/{name}.cc":
           "tests/simulation/protocol/protocol_simulation_test.cc"
       for name in ("world", "world_heartbeats", "world_links",
                    "world_processes")},
    "simulation/closed_law.cc": "tests/simulation/fleet_law_test.cc",
    **{f"tokenizer/{name}.cc": "tests/tokenizer/hugging_face_tokenizer_test.cc"
       for name in ("added_tokens", "bpe_model", "decoder", "decoder_stages",
                    "normalizer", "pattern", "post_processor",
                    "pre_tokenizer")},
    **{f"tokenizer/{name}.cc":
       "tests/tokenizer/sentencepiece_tokenizer_test.cc"
       for name in ("sentencepiece_decoder", "sentencepiece_model",
                    "sentencepiece_normalizer", "proto_wire")},
    "tokenizer/piece_cover.cc": "tests/tokenizer/limited_encode_test.cc",
    **{f"tokenizer/{name}.cc": "tests/tokenizer/load_tokenizer_test.cc"
       for name in ("json_fields", "tokenizer", "tokenizer_config")},
    **{f"tokenizer/{name}.cc": "tests/tokenizer/text_units_test.cc"
       for name in ("byte_level", "prefix_trie", "text_split",
                    "unicode_normalization", "utf8", "vocabulary")},
    **{f"tokenizer/{name}.cc": "tests/tokenizer/regex_test.cc"
       for name in ("character_set", "class_reader", "pattern_translator",
                    "unicode_additions", "unicode_data")},
}

MAX_HEADER_LINES = 300
MAX_SOURCE_LINES = 700

# Of what is no test. Methods that a class declares, but for defaulted and
# deleted ones; variables of each object, without those of its bases.
MAX_FUNCTION_LINES = 70
MAX_METHODS = 30
MAX_MEMBERS = 25

CUDA_MACRO = "NACRE_WITH_CUDA"
CUDA_MACRO_FILE = "kernels/backend_factory.cc"

HEADERS = (".h", ".cuh")
SOURCES = (".cc", ".cu")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def folder_of(path, table):
    """The longest entry of `table` that holds `path`, or None."""
    found = [folder for folder in table if under(path, folder)]
    return max(found, key=len) if found else None


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def check_includes(path, text):
    """Dependencies point down (the table above)."""
    owner = folder_of(path, ALLOWED_INCLUDES)
    if owner is None:
        yield "is in no folder of ALLOWED_INCLUDES"
        return
    allowed = ALLOWED_INCLUDES[owner]
    for _, included in INCLUDE.findall(text):
        target = folder_of(included, ALLOWED_INCLUDES)
        if target is None or target == owner:
            continue
        if target == "common/rpc":
            if owner in RPC_FREE_FOLDERS:
                yield f"includes {included}: {owner}/ does not speak RPC"
            continue
        if any(under(included, entry) for entry in allowed):
            continue
        if "*" in allowed and target != "tests":
            continue
        yield (f"includes {included}: {owner}/ may include "
               f"{', '.join(allowed) or 'nothing else of ours'}")


def check_grpc(path, text):
    """gRPC headers stay with those that speak RPC."""
    if any(under(path, folder) for folder in GRPC_FOLDERS):
        return
    for _, included in INCLUDE.findall(text):
        if included.startswith(("grpcpp/", "grpc/")):
            yield f"includes {included}: only {', '.join(GRPC_FOLDERS)} may"


def check_pure(path, text):
    """What is pure stays so."""
    owner = folder_of(path, PURE_FOLDERS)
    if owner is None:
        return
    for bracket, included in INCLUDE.findall(text):
        if (IMPURE_HEADERS.fullmatch(included)
                or SYSTEM_HEADER.fullmatch(bracket + included)):
            yield (f"includes {included}: {owner}/ has no I/O, no clock and no "
                   "threads")


def check_proto(path, text):
    """*.pb.h stops at service and client files."""
    offenders = [i for _, i in INCLUDE.findall(text) if i.endswith(".pb.h")]
    if not offenders or path in PROTO_FILES:
        return
    if any(under(path, folder) for folder in PROTO_FREE_RANGE):
        return
    name = os.path.basename(path)
    in_folder = any(under(path, folder) for folder in PROTO_FOLDERS)
    if in_folder and any(word in name for word in PROTO_WORDS):
        return
    yield (f"includes {offenders[0]}: protobuf types stop at service and client "
           f"files (name with {'|'.join(PROTO_WORDS)}, or PROTO_FILES)")


def check_json(path, text):
    """JSON is parsed where its depth is limited, by a library that checks."""
    if path != JSON_HEADER and re.search(r"#include .nlohmann/json\.hpp", text):
        yield f"includes nlohmann/json.hpp: include {JSON_HEADER}"
    if path in JSON_PARSERS or under(path, "tests"):
        return
    if re.search(r"[Jj]son::(sax_)?(parse|accept|from_)", text):
        yield "parses JSON: only those of JSON_PARSERS may"


def check_guard(path, text):
    """Header guards are FOLDER_SUB_FILE_H_."""
    # Highway compiles -inl.h files once per target, with a guard that toggles.
    if not path.endswith(HEADERS) or path.endswith("-inl.h"):
        return
    guard = re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
    wanted = f"#ifndef {guard}\n#define {guard}\n"
    if wanted not in text or f"#endif  // {guard}" not in text:
        yield f"has not the header guard {guard}"


def check_length(path, text):
    """A file is one idea."""
    lines = text.count("\n")
    limit = MAX_HEADER_LINES if path.endswith(HEADERS) else MAX_SOURCE_LINES
    if lines > limit:
        yield f"has {lines} lines, the limit is {limit}"


def check_shapes(path, text):
    """Functions and classes are one idea each."""
    if under(path, "tests"):
        return
    language = py_shapes if path.endswith(".py") else cpp_shapes
    shapes = language.Reader(text)
    for function in shapes.functions:
        if function.lines > MAX_FUNCTION_LINES:
            yield (f"line {function.line}: {function.name} has "
                   f"{function.lines} lines, the limit of a function is "
                   f"{MAX_FUNCTION_LINES}")
    for shape in shapes.classes:
        where = f"line {shape.line}: {shape.name} has"
        if shape.methods > MAX_METHODS:
            yield f"{where} {shape.methods} methods, the limit is {MAX_METHODS}"
        if shape.members > MAX_MEMBERS:
            yield f"{where} {shape.members} members, the limit is {MAX_MEMBERS}"


def check_cuda_macro(path, text):
    """One #ifdef for CUDA, in the backend factory."""
    if path == CUDA_MACRO_FILE or under(path, "tests"):
        return
    if re.search(rf"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\b{CUDA_MACRO}\b", text,
                 re.M):
        yield f"tests {CUDA_MACRO}: only {CUDA_MACRO_FILE} may"


def test_paths(path):
    """Where the test of a source may be: mirrored; common/rpc in tests/rpc."""
    stem = re.sub(r"\.(cc|cu)$", r"_test.\1", path)
    if under(stem, "common/rpc"):
        return {f"tests/{stem}", f"tests/{stem.removeprefix('common/')}"}
    return {f"tests/{stem}"}


def check_tests(paths):
    """Every source of the library folders has a test, or a reason."""
    for path in sorted(paths):
        if path.endswith(SOURCES) and path not in UNTESTED and any(
                under(path, folder) for folder in TESTED_FOLDERS):
            if path in TESTED_BY:
                if TESTED_BY[path] not in paths:
                    yield path, f"its test {TESTED_BY[path]} is not there"
            elif not test_paths(path) & paths:
                yield path, (f"has no test {min(test_paths(path), key=len)}"
                             " (or a line in TESTED_BY or UNTESTED)")
    for path in sorted(paths):
        for table, name in ((UNTESTED, "UNTESTED"), (TESTED_BY, "TESTED_BY")):
            if path in table and test_paths(path) & paths:
                yield path, f"has a test by now: delete its line from {name}"


def check_rows(paths):
    """Tables of files name those that are there."""
    for table, name in ((UNTESTED, "UNTESTED"), (TESTED_BY, "TESTED_BY"),
                        (PROTO_FILES, "PROTO_FILES"),
                        (JSON_PARSERS, "JSON_PARSERS")):
        for path in table:
            if path not in paths:
                yield path, f"is not there: delete its line from {name}"


FILE_CHECKS = [check_includes, check_grpc, check_pure, check_proto, check_json,
               check_guard, check_length, check_shapes, check_cuda_macro]


def offenders(root, paths):
    """Yields (path, what is wrong) for files `paths` under `root`: C++, and
    the product's Python, of which only the shapes are checked."""
    for path in sorted(paths):
        text = read(root, path)
        checks = [check_shapes] if path.endswith(".py") else FILE_CHECKS
        for check_file in checks:
            for message in check_file(path, text):
                yield path, message
    yield from check_tests(paths)


def guarded(path, body=""):
    guard = re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
    return f"#ifndef {guard}\n#define {guard}\n{body}\n#endif  // {guard}\n"


def shaped(methods, members):
    """A class of so many methods and members, however they are written."""
    odd_methods = [
        "Odd() : a_(1), b_{2} {}",
        "int Get() const ABSL_LOCKS_EXCLUDED(mu_) { return a_ < b_ ? 1 : 2; }",
        "template <typename T> void Set(std::vector<T> all, int more = 3);",
        "virtual bool operator()(int a) const = 0;",
        "bool operator<(const Odd& other) const;",
        "static int Make(std::function<int(int)> make);",
    ]
    odd_members = [
        "int a_ ABSL_GUARDED_BY(mu_) = 0, b_;",
        "std::map<int, std::vector<int>> c_ = {{1, {2}}};",
        "std::function<void(int)> d_;",
        "int (*e_)(int, int) = nullptr;",
        "char f_[sizeof(int)]{};  // not } the end",
    ]
    no_members = [
        "Odd(const Odd&) = delete;", "~Odd() = default;",
        "static constexpr int kMost = 3;", "using T = std::vector<int>;",
        "friend class Other;", "class Later;", "enum class E { kA, kB };",
        "struct Inner { int x; int y() { return x; } };",
    ]
    lines = odd_methods + odd_members + no_members + ["public:"]
    lines += [f"void Method{i}();" for i in range(methods - len(odd_methods))]
    lines += [f"int x{i}_;" for i in range(members - len(odd_members) - 1)]
    return "class Odd : public Base<int> {\n" + "\n".join(lines) + "\n};"


def long_function(lines):
    body = ["if (a) { const auto f = [](int b) { return b; }; f('}'); }"]
    return ("namespace {\nint Long(int a) {\n"
            + "\n".join(body * (lines - 2)) + "\n}\n}  // namespace\n")


def long_python(lines):
    return "def long():\n" + "    pass\n" * (lines - 1)


def wide_python(members):
    """Of a class: some are its own, some its objects'."""
    own = "".join(f"    a{i}: int\n" for i in range(members - 3))
    return (f"class Wide:\n{own}    b, c = 1, 2\n"
            "    def make(self):\n        self.b = self.d = 2\n")


TEST = "// A test.\n"


def good_files():
    """Path to text, without an offence."""
    return {
        "common/a.h": guarded("common/a.h", '#include "absl/base/macros.h"'),
        "common/a.cc": '#include "common/a.h"\n',
        "common/shape.h": guarded("common/shape.h",
                                  shaped(MAX_METHODS, MAX_MEMBERS)
                                  + long_function(MAX_FUNCTION_LINES)),
        "tests/common/a_test.cc": '#include "common/a.h"\n',
        "common/rpc/b.cc": '#include "common/a.h"\n#include "grpcpp/x.h"\n',
        "tests/rpc/b_test.cc": TEST,
        "draft_worker/c_service.cc": '#include "proto/worker.pb.h"\n'
                                     '#include "kernels/backend_factory.h"\n'
                                     '#include "common/rpc/b.h"\n',
        "tests/draft_worker/c_service_test.cc": TEST,
        "tools/d.cc": '#include "coordinator/x.h"\n',
        "kernels/backend_factory.cc": f"#ifdef {CUDA_MACRO}\n#endif\n",
        "tests/kernels/backend_factory_test.cc": TEST,
        "tools/shapes.py": long_python(MAX_FUNCTION_LINES)
                           + wide_python(MAX_MEMBERS),
        # Other folders may have a clock.
        "wire/clock.h": guarded("wire/clock.h", "#include <chrono>"),
        "speculation/pure.h": guarded(
            "speculation/pure.h",
            '#include <functional>\n#include "absl/time/time.h"\n'
            '#include "common/check.h"'),
    }


def bad_files():
    """Path to (text, a part of the message that must come)."""
    return {
        "common/up.h": (guarded("common/up.h", '#include "model/x.h"'),
                        "includes model/x.h"),
        "speculation/rpc.h": (guarded("speculation/rpc.h",
                                      '#include "common/rpc/b.h"'),
                              "does not speak RPC"),
        **{f"speculation/pure{i}.h": (guarded(f"speculation/pure{i}.h",
                                              f"#include {included}"),
                                      f"includes {included[1:-1]}: speculation/")
           for i, included in enumerate((
               "<thread>", "<mutex>", "<chrono>", "<fstream>", "<iostream>",
               "<unistd.h>", "<random>", '"absl/time/clock.h"',
               '"absl/synchronization/mutex.h"', '"common/clock.h"'))},
        "coordinator/model.h": (guarded("coordinator/model.h",
                                        '#include "model/x.h"'),
                                "includes model/x.h"),
        "target_worker/kernel.h": (guarded("target_worker/kernel.h",
                                           '#include "kernels/cpu/x.h"'),
                                   "includes kernels/cpu/x.h"),
        "tools/test.h": (guarded("tools/test.h", '#include "tests/x.h"'),
                         "includes tests/x.h"),
        "model/grpc.h": (guarded("model/grpc.h", "#include <grpcpp/x.h>"),
                         "includes grpcpp/x.h"),
        "coordinator/loop.h": (guarded("coordinator/loop.h",
                                       '#include "proto/inference.pb.h"'),
                               "protobuf types stop"),
        "tools/json.cc": ("auto a = nlohmann::json::parse(text);\n",
                          "parses JSON"),
        "tests/model/json.cc": ("#include <nlohmann/json.hpp>\n",
                                "includes nlohmann/json.hpp"),
        "common/guard.h": ("#pragma once\n", "has not the header guard"),
        "model/long.h": (guarded("model/long.h", "\n" * MAX_HEADER_LINES),
                         "lines, the limit is"),
        "tests/model/long_test.cc": ("\n" * (MAX_SOURCE_LINES + 1),
                                     "lines, the limit is"),
        "model/methods.h": (guarded("model/methods.h",
                                    shaped(MAX_METHODS + 1, MAX_MEMBERS)),
                            f"Odd has {MAX_METHODS + 1} methods"),
        "model/members.h": (guarded("model/members.h",
                                    shaped(MAX_METHODS, MAX_MEMBERS + 1)),
                            f"Odd has {MAX_MEMBERS + 1} members"),
        "model/function.h": (guarded("model/function.h",
                                     long_function(MAX_FUNCTION_LINES + 1)),
                             f"Long has {MAX_FUNCTION_LINES + 1} lines"),
        "model/untested.cc": ("// Nothing.\n", "has no test"),
        "kernels/cuda.h": (guarded("kernels/cuda.h",
                                   f"#if defined({CUDA_MACRO})\n#endif"),
                           f"tests {CUDA_MACRO}"),
        "draft_worker/main.cc": ("// Nothing.\n",
                                 "delete its line from UNTESTED"),
        "tests/draft_worker/main_test.cc": (TEST, None),
        "model/weights.cc": ("// Nothing.\n",
                             "delete its line from TESTED_BY"),
        TESTED_BY["model/weights.cc"]: (TEST, None),
        "tests/model/weights_test.cc": (TEST, None),
        "new/folder.h": (guarded("new/folder.h"), "in no folder of"),
        "proto/names.h": (guarded("proto/names.h", '#include "wire/x.h"'),
                          "includes wire/x.h"),
        "tools/long.py": (long_python(MAX_FUNCTION_LINES + 1),
                          f"long has {MAX_FUNCTION_LINES + 1} lines"),
        "tools/wide.py": (wide_python(MAX_MEMBERS + 1),
                          f"Wide has {MAX_MEMBERS + 1} members"),
    }


def self_test():
    """Plants violations; returns 0 when exactly those are found."""
    bad = bad_files()
    files = {**good_files(), **{path: text for path, (text, _) in bad.items()}}
    expected = {path: part for path, (_, part) in bad.items() if part}
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = list(offenders(root, set(files)))
    wrong = 0
    for path, part in expected.items():
        if not any(p == path and part in message for p, message in found):
            print(f"self-test: not caught: {path} ({part})", file=sys.stderr)
            wrong += 1
    rows = {*UNTESTED, *TESTED_BY, *PROTO_FILES, *JSON_PARSERS}
    lost = {next(iter(UNTESTED)), next(iter(TESTED_BY)), PROTO_FILES[-1],
            JSON_PARSERS[-1]}
    seen = {path for path, _ in check_rows(rows - lost)}
    if seen != lost or any(check_rows(rows)):
        print(f"self-test: of lost {lost} seen: {seen}", file=sys.stderr)
        wrong += 1
    for path, message in found:
        if path not in expected or expected[path] not in message:
            print(f"self-test: false alarm: {path} {message}", file=sys.stderr)
            wrong += 1
    print(f"self-test: {len(expected)} violations planted, "
          f"{'all caught' if wrong == 0 else f'{wrong} wrong answers'}")
    return wrong


def check():
    paths = {path for path in checked_tree.tracked_files()
             if path.endswith(HEADERS + SOURCES) or PYTHON.fullmatch(path)}
    found = [*offenders(checked_tree.ROOT, paths), *check_rows(paths)]
    for path, message in found:
        print(f"{path}: {message}")
    print(f"check_layout: {len(paths)} files, {len(found)} offences")
    return len(found)


if __name__ == "__main__":
    sys.exit(checked_tree.run("Checks the source layout.", self_test, check))
