#include "dist/group.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/error.h"
#include "core/base/version.h"
#include "dist/group_impl.h"
#include "dist/store_options.h"

namespace melete {

namespace {

std::atomic<bool> some_failed{false};

constexpr int64_t kPackedBytes = 16 << 20;  // smaller tensors travel together

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// Counts every arrival, waits for the rest, checks that all were told the same as rank 0: as soon as it is
// there, since a rank with another idea of the size would wait for ranks that nobody starts.
void meet(c10d::Store& store, const Place& place, const DistConfig& config) {
  const std::string told =
      fmt::format("{} processes of melete {} on LibTorch {}", place.size, version(), TORCH_VERSION);
  const auto arrived = [&](int64_t rank) { return store.check({fmt::format("arrived/{}", rank)}); };
  set_text(store, fmt::format("told/{}", place.rank), told);
  require(
      store.add(fmt::format("arrived/{}", place.rank), 1) == 1,
      "[dist] two processes say that they are rank {} of {}; give every process a rank of its own, or use "
      "another port if two runs share {}:{}",
      place.rank, place.size, place.address, place.port);
  const auto limit = std::chrono::steady_clock::now() + milliseconds(config.connect_seconds);
  for (int64_t rank = 0; rank < place.size; ++rank) {
    while (!arrived(rank)) {
      if (std::chrono::steady_clock::now() > limit) {
        std::vector<int64_t> missing;
        for (int64_t each = 0; each < place.size; ++each)
          if (!arrived(each)) missing.push_back(each);
        fail(
            "[dist] rank {} waited {} s at {}:{} for rank {} of {}; are all processes started, with the "
            "right "
            "size?",
            place.rank, config.connect_seconds, place.address, place.port, fmt::join(missing, ", "),
            place.size);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    // Rank 0 looks at everyone, everyone at rank 0.
    if (rank == place.rank || (rank > 0 && !place.main())) continue;
    const std::string theirs = get_text(store, fmt::format("told/{}", rank));
    require(theirs == told,
            "[dist] rank {} was started as one of {}, rank {} as one of {}; start all ranks alike",
            place.rank, told, rank, theirs);
  }
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
}

}  // namespace

std::string first_line_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void quiet_c10d() {
  // By name, because a LibTorch logs either through glog or by itself; its own level of the same numbers.
  // Debian's 2.6 has both names outside of any namespace.
  for (const char* level : {"_ZN3fLI17FLAGS_minloglevelE", "_ZN3c1022FLAGS_caffe2_log_levelE",
                            "FLAGS_caffe2_log_level", "FLAGS_minloglevel"})
    if (void* found = ::dlsym(RTLD_DEFAULT, level)) *static_cast<int32_t*>(found) = 3;  // only what is fatal
}

StorePointer connect_store(const Place& place, const DistConfig& config, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = serve;
  options.waitWorkers = false;
  without_libuv(options);
  options.timeout = milliseconds(config.connect_seconds);
  c10::intrusive_ptr<c10d::TCPStore> store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(place.address, options);
  } catch (const std::exception& error) {
    if (serve)
      fail("[dist] rank 0 cannot listen on port {}: {}; try another MASTER_PORT", place.port,
           std::string(error.what()).find("in use") != std::string::npos ? "it is already taken"
                                                                         : first_line_of(error));
    fail(
        "[dist] rank {} cannot reach {} at {}:{} within {} s; check MASTER_ADDR, MASTER_PORT and the "
        "firewall",
        place.rank, place.store_outside ? "the launcher" : "rank 0", place.address, place.port,
        config.connect_seconds);
  }
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", place.run, place.restarts), store);
}

const ProcessGroupPointer& Group::Impl::of(const at::Tensor& tensor) const {
  if (tensor.device().is_cpu()) return gloo;
  require(bool(nccl),
          "[dist] this LibTorch has no NCCL, so that tensors on {} cannot be exchanged; try device cpu",
          tensor.device().str());
  return nccl;
}

Group::Group() = default;

Group::Group(const Place& place, const DistConfig& config) : place_(place) {
  if (place.alone()) return;
  quiet_c10d();
  impl_ = std::make_unique<Impl>();
  impl_->config = config;
  impl_->store = connect_store(place, config, place.main() && !place.store_outside);
  try {
    meet(*impl_->store, place, config);
    DistConfig short_waits = config;
    impl_->monitor =
        std::make_unique<Monitor>(connect_store(place, short_waits, false), place, config.heartbeat_seconds);
    impl_->store->setTimeout(milliseconds(config.timeout_seconds));
    impl_->gloo =
        make_gloo_group(c10::make_intrusive<c10d::PrefixStore>("gloo", impl_->store), place, config);
    impl_->nccl =
        make_nccl_group(c10::make_intrusive<c10d::PrefixStore>("nccl", impl_->store), place, config);
  } catch (const Error&) {
    // Whoever keeps the store stays long enough for the others to read why.
    if (place.main() && !place.store_outside) std::this_thread::sleep_for(std::chrono::seconds(1));
    throw;
  } catch (const std::exception& error) {
    fail("[dist] rank {} cannot join the group of {} at {}:{}: {}", place.rank, place.size, place.address,
         place.port, first_line_of(error));
  }
}

Group::~Group() {
  if (!impl_ || impl_->finished) return;
  // A process group that is torn down waits for what is still under way; the other ends may be long gone.
  some_failed = true;
  if (impl_->monitor && impl_->monitor->store_lost()) impl_->monitor.release();
  impl_->gloo.release();
  impl_->nccl.release();
  impl_->store.release();
}

bool Group::some_group_failed() {
  return some_failed;
}

void Group::enter(const std::string& stage, int64_t step) {
  if (impl_) impl_->monitor->enter(stage, step);
}

void Group::explain(const std::exception& error) {
  impl_->failed = true;
  some_failed = true;
  const std::string where = impl_->monitor->where(), culprits = impl_->monitor->find_culprits();
  if (culprits.empty())
    fail("[dist] rank {} could not go on in {}: {}; start again with --resume", rank(), where,
         first_line_of(error));
  fail("[dist] rank {} waited in {} for {}; start again with --resume", rank(), where, culprits);
}

void Group::guarded(const std::function<void()>& run) {
  impl_->monitor->count_collective();
  try {
    run();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    explain(error);
  }
}

void Group::sum(at::Tensor& tensor) {
  if (alone() || tensor.numel() == 0) return;
  at::Tensor dense = tensor.contiguous();
  guarded([&] {
    std::vector<at::Tensor> list{dense};
    impl_->of(dense)->allreduce(list)->wait();
  });
  if (!dense.is_same(tensor)) tensor.copy_(dense);
}

void Group::mean(at::Tensor& tensor) {
  if (alone()) return;
  sum(tensor);
  tensor.div_(static_cast<double>(size()));
}

bool Group::any(bool value) {
  if (alone()) return value;
  at::Tensor count = at::full({1}, value ? 1 : 0, at::kInt);
  sum(count);
  return count.item<int>() > 0;
}

at::Tensor Group::gather(const at::Tensor& tensor) {
  if (alone()) return tensor.unsqueeze(0);
  at::Tensor one = tensor.contiguous().view({-1});
  at::Tensor all = at::empty({size() * one.numel()}, one.options());
  if (one.numel() > 0)
    guarded([&] {
      std::vector<at::Tensor> inputs{one};
      std::vector<std::vector<at::Tensor>> outputs{all.view({size(), -1}).unbind(0)};
      impl_->of(one)->allgather(outputs, inputs)->wait();
    });
  std::vector<int64_t> shape{size()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  return all.view(shape);
}

void Group::barrier() {
  if (alone()) return;
  guarded([&] { impl_->gloo->barrier()->wait(); });
}

void Group::on_main(const std::string& stage, int64_t step, const std::function<void()>& work) {
  enter(stage, step);
  if (alone()) return work();
  const std::string done = fmt::format("done/{}", impl_->turns++);
  if (!main()) return guarded([&] { impl_->monitor->wait_for_main(done, impl_->config.timeout_seconds); });
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  guarded([&] { set_text(*impl_->store, done, "done"); });
  if (failure) std::rethrow_exception(failure);
}

void Group::copy_from_main(const std::vector<at::Tensor>& tensors) {
  if (alone()) return;
  const at::NoGradGuard no_gradient;
  std::map<std::string, at::Tensor> travelling;
  for (size_t i = 0; i < tensors.size(); ++i)
    travelling[fmt::format("{:08}", i)] = tensors[i].detach().to(at::kCPU).contiguous();
  from_main(travelling);
  if (main()) return;
  size_t next = 0;
  for (const auto& [name, tensor] : travelling) {
    require(next < tensors.size() && tensors[next].sizes() == tensor.sizes(),
            "[dist] rank {} has another model than rank 0; are the settings the same everywhere?", rank());
    tensors[next++].detach().copy_(tensor);
  }
}

std::string Group::from_main(const std::string& text) {
  if (alone()) return text;
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  const auto send = [&](at::Tensor& tensor) {
    guarded([&] {
      std::vector<at::Tensor> list{tensor};
      impl_->gloo->broadcast(list)->wait();
    });
  };
  send(length);
  std::string result = text;
  result.resize(static_cast<size_t>(length.item<int64_t>()));
  if (result.empty()) return result;
  at::Tensor bytes = at::from_blob(result.data(), {static_cast<int64_t>(result.size())}, at::kByte);
  send(bytes);
  return result;
}

void Group::from_main(std::map<std::string, at::Tensor>& tensors) {
  if (alone()) return;
  nlohmann::json list = nlohmann::json::array();
  if (main())
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.to(at::kCPU).contiguous();
      list.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
    }
  list = nlohmann::json::parse(from_main(list.dump()));
  if (!main()) {
    tensors.clear();
    for (const auto& entry : list)
      tensors[entry[0]] =
          at::empty(entry[2].get<std::vector<int64_t>>(), static_cast<at::ScalarType>(entry[1].get<int>()));
  }
  const auto send = [&](at::Tensor& bytes) {
    guarded([&] {
      std::vector<at::Tensor> one{bytes};
      impl_->gloo->broadcast(one)->wait();
    });
  };
  std::vector<at::Tensor> small;
  int64_t small_bytes = 0;
  const auto send_small = [&] {
    if (small.empty()) return;
    at::Tensor packed = main() ? at::cat(small) : at::empty({small_bytes}, at::kByte);
    send(packed);
    int64_t at = 0;
    for (at::Tensor& each : small) {
      if (!main()) each.copy_(packed.narrow(0, at, each.numel()));
      at += each.numel();
    }
    small.clear();
    small_bytes = 0;
  };
  for (auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    at::Tensor bytes = bytes_of(tensor);
    if (bytes.numel() > kPackedBytes) {
      send(bytes);
      continue;
    }
    small.push_back(bytes);
    small_bytes += bytes.numel();
    if (small_bytes > kPackedBytes) send_small();
  }
  send_small();
}

void Group::require_same(const std::string& what, const std::string& text) {
  if (alone()) return;
  const std::string main_text = from_main(text);
  const at::Tensor different = gather(at::full({1}, main_text == text ? 0 : 1, at::kInt)).flatten();
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < size(); ++i)
    if (different[i].item<int>() != 0) ranks.push_back(i);
  require(ranks.empty(), "[dist] {} of rank {} differs from that of rank 0 ({})", what,
          fmt::join(ranks, ", "),
          main_text == text ? text : fmt::format("here {}, there {}", text, main_text));
}

void Group::say_failure(const std::string& reason) {
  if (!impl_ || impl_->failed) return;
  impl_->failed = true;
  impl_->monitor->say_failure(reason.substr(0, 500));
  // Whoever keeps the store stays long enough for the others to read why.
  if (main() && !place_.store_outside)
    std::this_thread::sleep_for(milliseconds(impl_->config.heartbeat_seconds * 4));
}

void Group::finish() {
  if (!impl_ || impl_->failed || impl_->finished) return;
  enter("end");
  barrier();
  impl_->monitor->say_done();
  impl_->monitor.reset();
  impl_->finished = true;
  // The one who keeps the store lets it go last.
  if (main() && !place_.store_outside) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace melete
