#include "fleet/launch/free_ports.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace::fleet {
namespace {

using ::testing::ElementsAre;

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(FreePorts, ReadsTheRangeOfTheSystem) {
  EXPECT_EQ(parse_port_range("1024\t20000\n").first, 1024);
  EXPECT_EQ(parse_port_range("1024\t20000\n").last, 20000);
  for (const char* const text : {"", "many", "5 4", "0 9", "1 70000", "7"}) {
    EXPECT_EQ(parse_port_range(text).first, 32768) << text;
    EXPECT_EQ(parse_port_range(text).last, 60999) << text;
  }
}

TEST(FreePorts, DifferAndAreNoneOfOutgoingConnections) {
  const PortRange given = parse_port_range(text_of("/proc/sys/net/ipv4/ip_local_port_range"));
  if (given.first <= 10100 && given.last >= 65435)
    GTEST_SKIP() << "the system gives all ports away";
  const auto ports = free_ports(40);
  ASSERT_TRUE(ports.ok()) << ports.status().message();
  EXPECT_EQ(std::set<int>(ports->begin(), ports->end()).size(), 40U);
  for (const int port : *ports) EXPECT_TRUE(port < given.first || port > given.last) << port;
}

TEST(FreePorts, LeaveOutThoseThatAreTaken) {
  const auto ports = free_ports(3);
  ASSERT_TRUE(ports.ok()) << ports.status().message();
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(ports->front()));
  ASSERT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto again = free_ports(2, *ports);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_THAT(*again, ElementsAre(ports->at(1), ports->at(2)));
  close(file);
}

TEST(FreePorts, AreTheSystemsWhereCandidatesDoNotSuffice) {
  const auto ports = free_ports(2, {});
  ASSERT_TRUE(ports.ok()) << ports.status().message();
  EXPECT_NE(ports->front(), ports->back());
  EXPECT_GT(ports->front(), 0);
}

}  // namespace
}  // namespace millrace::fleet
