// Where this process stands among several, as torchrun, SLURM, Open MPI or our own launcher say it in the
// environment. Contradictions are errors: a group that starts with a wrong idea of itself hangs later.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace melete {

struct Place {
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the processes of this machine
  std::string address = "127.0.0.1";       // of the store through which the ranks find each other
  int64_t port = 0;
  bool store_outside = false;    // the launcher keeps the store (torchrun, --procs), else rank 0 does
  std::string run = "melete";    // tells this group's keys from those of an earlier or another one
  int64_t restarts = 0;          // how often the launcher has started this group anew
  std::string source = "alone";  // "torchrun", "SLURM", "Open MPI", "alone"

  bool alone() const { return size == 1; }
  bool main() const { return rank == 0; }
  bool one_machine() const { return local_size == size; }
};

using Environment = std::function<std::optional<std::string>(const char* name)>;

// Of this process.
std::optional<std::string> own_environment(const char* name);

// An Error names the variables that are missing or contradict each other.
Place read_place(const Environment& environment = own_environment);

// "node[03-05,9],other" -> "node03"
std::string first_host(const std::string& slurm_node_list);

}  // namespace melete
