#include "dist/base/environment.h"

#include <charconv>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/random.h"

namespace melete {

namespace {

constexpr int64_t kDefaultPort = 29500;

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> text(const char* name) const {
    const auto value = environment_(name);
    return value && !value->empty() ? value : std::nullopt;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int64_t> number(const char* name, int64_t low, int64_t high) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int64_t result = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
    require(error == std::errc() && end == value->data() + value->size() && result >= low && result <= high,
            "[{}] expected a whole number from {} to {}, got '{}'", name, low, high, value->substr(0, 40));
    return result;
  }
  int64_t needed(const char* name, int64_t low, int64_t high, const char* because) const {
    const auto value = number(name, low, high);
    require(value.has_value(), "[{}] is not set although {} is; set both or neither", name, because);
    return *value;
  }

 private:
  const Environment& environment_;
};

constexpr int64_t kMost = 1 << 20;

// A port that every rank of one job finds alike, and two jobs rarely share.
int64_t port_from(const std::string& job) {
  return 20000 + static_cast<int64_t>(random_key(0, "port of " + job) % 20000);
}

void read_address(const Variables& variables, Place& place, const std::string& address, int64_t port) {
  place.address = variables.text("MASTER_ADDR").value_or(address);
  place.port = variables.number("MASTER_PORT", 1, 65535).value_or(port);
}

void check(const Place& place) {
  require(place.rank < place.size, "[dist] {} says rank {} of {} processes; ranks count from 0", place.source,
          place.rank, place.size);
  require(place.local_rank < place.local_size && place.local_size <= place.size,
          "[dist] {} says process {} of {} on this machine, and {} in all; that cannot be", place.source,
          place.local_rank, place.local_size, place.size);
}

// What a person exports by hand must not contradict what the launcher says.
void compare(const Variables& variables, const char* ours, int64_t value, const char* theirs) {
  const auto other = variables.number(theirs, 0, kMost);
  require(!other || *other == value,
          "[dist] {} is {} but {} is {}; unset the one that is left over from elsewhere", ours, value, theirs,
          other.value_or(0));
}

Place from_torchrun(const Variables& variables) {
  Place place;
  place.source = "torchrun";
  const char* because = variables.has("RANK") ? "RANK" : "WORLD_SIZE";
  place.rank = variables.needed("RANK", 0, kMost, because);
  place.size = variables.needed("WORLD_SIZE", 1, kMost, because);
  place.local_rank = variables.number("LOCAL_RANK", 0, kMost).value_or(place.rank);
  place.local_size = variables.number("LOCAL_WORLD_SIZE", 1, kMost).value_or(place.size);
  if (place.size > 1)
    require(variables.has("MASTER_ADDR") && variables.has("MASTER_PORT"),
            "[dist] RANK and WORLD_SIZE are set but MASTER_ADDR or MASTER_PORT is not; the ranks cannot find "
            "each other");
  read_address(variables, place, place.address, kDefaultPort);
  place.store_outside = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place.run = variables.text("TORCHELASTIC_RUN_ID").value_or("melete");
  place.restarts = variables.number("TORCHELASTIC_RESTART_COUNT", 0, kMost).value_or(0);
  // Under torchrun itself SLURM's and MPI's numbers count machines, not our processes.
  if (!variables.has("TORCHELASTIC_RUN_ID")) {
    compare(variables, "RANK", place.rank, "OMPI_COMM_WORLD_RANK");
    compare(variables, "WORLD_SIZE", place.size, "OMPI_COMM_WORLD_SIZE");
    if (variables.has("SLURM_STEP_NUM_TASKS") && !variables.has("OMPI_COMM_WORLD_RANK")) {
      compare(variables, "RANK", place.rank, "SLURM_PROCID");
      compare(variables, "WORLD_SIZE", place.size, "SLURM_STEP_NUM_TASKS");
    }
  }
  return place;
}

Place from_open_mpi(const Variables& variables) {
  Place place;
  place.source = "Open MPI";
  const char* because = "OMPI_COMM_WORLD_RANK";
  place.rank = variables.needed("OMPI_COMM_WORLD_RANK", 0, kMost, because);
  place.size = variables.needed("OMPI_COMM_WORLD_SIZE", 1, kMost, because);
  place.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMost).value_or(place.rank);
  place.local_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMost).value_or(place.size);
  const auto job = variables.text("PMIX_NAMESPACE");
  read_address(variables, place, place.address, job ? port_from(*job) : kDefaultPort);
  require(place.one_machine() || variables.has("MASTER_ADDR"),
          "[dist] Open MPI has started processes on several machines; say where rank 0 is with "
          "mpirun -x MASTER_ADDR=its-name");
  return place;
}

Place from_slurm(const Variables& variables) {
  Place place;
  place.source = "SLURM";
  const char* because = "SLURM_PROCID";
  place.rank = variables.needed("SLURM_PROCID", 0, kMost, because);
  place.size = variables.needed("SLURM_STEP_NUM_TASKS", 1, kMost, because);
  place.local_rank = variables.number("SLURM_LOCALID", 0, kMost).value_or(place.rank);
  // "2(x3),1": tasks of each machine; only "all on one" and "this many on mine" matter here.
  const auto nodes = variables.number("SLURM_STEP_NUM_NODES", 1, kMost)
                         .value_or(variables.number("SLURM_NNODES", 1, kMost).value_or(1));
  const auto node = variables.number("SLURM_NODEID", 0, kMost).value_or(0);
  place.local_size = nodes == 1 ? place.size : place.local_rank + 1;
  if (const auto counts = variables.text("SLURM_STEP_TASKS_PER_NODE"); counts && nodes > 1) {
    int64_t at = 0;
    size_t begin = 0;
    while (begin < counts->size()) {
      const size_t end = std::min(counts->find(',', begin), counts->size());
      const std::string part = counts->substr(begin, end - begin);
      const int64_t tasks = std::atoll(part.c_str());
      const size_t times = part.find("(x");
      at += times == std::string::npos ? 1 : std::atoll(part.c_str() + times + 2);
      if (node < at) {
        place.local_size = std::max(tasks, place.local_rank + 1);
        break;
      }
      begin = end + 1;
    }
  }
  const auto hosts =
      variables.text("SLURM_STEP_NODELIST").value_or(variables.text("SLURM_JOB_NODELIST").value_or(""));
  require(nodes == 1 || !hosts.empty() || variables.has("MASTER_ADDR"),
          "[dist] SLURM does not say which machines the job runs on; export MASTER_ADDR");
  const auto job =
      variables.text("SLURM_JOB_ID").value_or("") + "." + variables.text("SLURM_STEP_ID").value_or("");
  read_address(variables, place, nodes == 1 ? "127.0.0.1" : first_host(hosts), port_from(job));
  return place;
}

}  // namespace

std::optional<std::string> own_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const size_t stop = list.find_first_of(",-]", end + 1);
  const size_t close = list.find(']', end);
  require(stop != std::string::npos && close != std::string::npos,
          "[dist] expected SLURM's list of machines, got '{}'", list.substr(0, 80));
  const size_t tail = std::min(list.find_first_of(",[", close), list.size());
  return list.substr(0, end) + list.substr(end + 1, stop - end - 1) +
         list.substr(close + 1, tail - close - 1);
}

Place read_place(const Environment& environment) {
  const Variables variables(environment);
  Place place;
  if (variables.has("RANK") || variables.has("WORLD_SIZE"))
    place = from_torchrun(variables);
  else if (variables.has("OMPI_COMM_WORLD_RANK"))
    place = from_open_mpi(variables);
  else if (variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_NUM_TASKS"))
    place = from_slurm(variables);  // a batch script without srun has no step: it is alone
  else
    return place;
  check(place);
  return place;
}

}  // namespace melete
