"""Functions and classes of a Python text, as cpp_shapes.py reads those of C++."""

import ast

import cpp_shapes

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def targets_of(node):
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        yield node.target


def members_of(shape):
    """Fields that a class names, and those that its methods set of self."""
    fields = {target.id for node in shape.body for target in targets_of(node)
              if isinstance(target, ast.Name)}
    return fields | {
        target.attr for node in ast.walk(shape) for target in targets_of(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name) and target.value.id == "self"}


class Reader:
    def __init__(self, text):
        nodes = [*ast.walk(ast.parse(text))]
        self.functions = [
            cpp_shapes.Function(node.name, node.lineno,
                                node.end_lineno - node.lineno + 1)
            for node in nodes if isinstance(node, FUNCTION)]
        self.classes = [
            cpp_shapes.Class(node.name, node.lineno,
                             sum(isinstance(n, FUNCTION) for n in node.body),
                             len(members_of(node)))
            for node in nodes if isinstance(node, ast.ClassDef)]
