# The command line, the service and what decides on Kubernetes, from the checkout:
#   docker build -t wattsched:0.1.0 .
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" wattsched:0.1.0 solve examples/demo.json
FROM python:3.13-slim AS build
COPY . /src
RUN python -m venv /opt/wattsched
RUN /opt/wattsched/bin/pip install --no-cache-dir -c /src/constraints.txt '/src[cluster,kubernetes,parquet,plot,report,serve]'

FROM python:3.13-slim
COPY --from=build /opt/wattsched /opt/wattsched
RUN useradd --uid 10001 --no-create-home wattsched
ENV PATH=/opt/wattsched/bin:$PATH MPLCONFIGDIR=/tmp
USER 10001
WORKDIR /work
ENTRYPOINT ["wattsched"]
