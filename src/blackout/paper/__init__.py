"""The paper's figures, tables and claims, each rerun by ``blackout reproduce NAME``.

A study is a small module that declares its runs and its picture. What it is given is a
:class:`~blackout.paper.lab.Lab`, which has the texts and does the runs; what it gives is a
:class:`~blackout.paper.finding.Finding`, a table and a picture beside what the paper says.
"""
