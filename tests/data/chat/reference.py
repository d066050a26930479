"""What chat templates render to: PyPI jinja2 3.1.6 in the environment that
transformers 5.23 sets up (utils/chat_template_utils.py), written anew."""

import copy
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

# What strftime_now shows.
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9, 123456)
BOS = "<s>"
EOS = "</s>"


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body is a call block, as in transformers."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """Refuses attributes that begin with "_"."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Raised(jinja2.exceptions.TemplateError):
    """raise_exception of a template."""


def raise_exception(message):
    raise Raised(message)


def to_json(x, ensure_ascii=False, indent=None, separators=None,
            sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def kind_of(error):
    """The name that chat/errors.h gives such an error."""
    if isinstance(error, Raised):
        return "raised"
    if isinstance(error, jinja2.exceptions.SecurityError):
        return "SecurityError"
    if isinstance(error, jinja2.exceptions.UndefinedError):
        return "UndefinedError"
    if isinstance(error, (ValueError, ArithmeticError, LookupError,
                          jinja2.exceptions.FilterArgumentError)):
        return "ValueError"
    if isinstance(error, jinja2.exceptions.TemplateRuntimeError):
        return "TypeError"
    return "TypeError"


def render(env, case):
    """{"text"} or {"error", "message"} of one case; "parse" where the source is
    no template."""
    try:
        template = env.from_string(case["template"])
    except (jinja2.exceptions.TemplateSyntaxError, SyntaxError) as error:
        return {"parse": str(error)}
    # The filter indent of jinja2 changes a list that it is given.
    case = copy.deepcopy(case)
    variables = {"bos_token": BOS, "eos_token": EOS, **case.get("extra", {})}
    variables.update(messages=case["messages"], tools=case.get("tools"),
                     documents=None,
                     add_generation_prompt=case.get("agp", True))
    try:
        return {"text": template.render(**variables)}
    except Exception as error:  # Any: the kind is what is compared.
        return {"error": kind_of(error), "message": str(error)}
