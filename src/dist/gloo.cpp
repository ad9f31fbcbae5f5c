// Gloo, c10d's transport for CPU tensors, over the network interface that leads to the other machines.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/base/error.h"
#include "dist/backend.h"

namespace melete {

namespace {

std::string text_of(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

// Our own address on the way to `host`: a datagram socket is given one without anything being sent.
std::string address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  std::string result;
  for (const addrinfo* each = found; each && result.empty(); each = each->ai_next) {
    const int socket = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0)
      result = text_of(reinterpret_cast<sockaddr*>(&own));
    ::close(socket);
  }
  freeaddrinfo(found);
  return result;
}

std::string first_outside_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string result;
  for (const ifaddrs* each = all; each && result.empty(); each = each->ifa_next)
    if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET && (each->ifa_flags & IFF_UP) &&
        !(each->ifa_flags & IFF_LOOPBACK))
      result = text_of(each->ifa_addr);
  freeifaddrs(all);
  return result;
}

std::shared_ptr<::gloo::transport::Device> make_device(const Place& place) {
  using Gloo = c10d::ProcessGroupGloo;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface && *interface)
    return Gloo::createDeviceForInterface(interface);
  if (place.one_machine()) return Gloo::createDeviceForHostname("127.0.0.1");
  std::string address = address_towards(place.address);
  // On the machine of rank 0 the name may lead to the loopback, which the others cannot reach.
  if (is_loopback(address)) address = first_outside_address();
  return address.empty() ? Gloo::createDefaultDevice() : Gloo::createDeviceForHostname(address);
}

// Gloo of LibTorch 2.14 tells the streams of every rank that it is connected; its errors it throws.
class StreamsHushed {
 public:
  StreamsHushed() : out_(std::cout.rdbuf(said_.rdbuf())), err_(std::cerr.rdbuf(said_.rdbuf())) {}
  StreamsHushed(const StreamsHushed&) = delete;
  StreamsHushed& operator=(const StreamsHushed&) = delete;
  ~StreamsHushed() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }

 private:
  std::ostringstream said_;
  std::streambuf* out_;
  std::streambuf* err_;
};

}  // namespace

ProcessGroupPointer make_gloo_group(const StorePointer& store, const Place& place, const DistConfig& config) {
  const auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(config.timeout_seconds));
  options->devices.push_back(make_device(place));
  options->threads = 2;
  const int rank = static_cast<int>(place.rank), size = static_cast<int>(place.size);
  const StreamsHushed hushed;
  return as_group(c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options), store,
                  c10::DeviceType::CPU);
}

}  // namespace melete
