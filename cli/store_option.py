"""The option by which a command is told where models are kept."""

import click

store_option = click.option(
    "--store",
    metavar="URI",
    envvar="FORESHOCK_STORE",
    default="sqlite:///out/models/mlflow.db",
    show_default=True,
    show_envvar=True,
    help="sqlite:///FILE, or http(s)://HOST:PORT of an MLflow tracking server.",
)
